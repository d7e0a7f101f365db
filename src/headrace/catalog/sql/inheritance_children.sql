SELECT wanted.schema, wanted.name, hn.nspname::text, h.relname::text
FROM unnest($1::text[], $2::text[]) AS wanted (schema, name)
JOIN pg_namespace n ON n.nspname = wanted.schema
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name
JOIN pg_inherits i ON i.inhparent = c.oid
JOIN pg_class h ON h.oid = i.inhrelid AND NOT h.relispartition
JOIN pg_namespace hn ON hn.oid = h.relnamespace
ORDER BY 1, 2, 3, 4
