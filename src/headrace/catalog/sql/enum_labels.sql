SELECT wanted.name, array_agg(e.enumlabel::text ORDER BY e.enumsortorder)
FROM unnest($1::text[]) AS wanted (name)
JOIN (pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace)
  ON t.typtype = 'e' AND quote_ident(n.nspname) || '.' || quote_ident(t.typname) = wanted.name
JOIN pg_enum e ON e.enumtypid = t.oid
GROUP BY 1
