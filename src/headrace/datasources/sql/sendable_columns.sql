-- The columns that can be sent of some tables ($1: schemas, $2: names); the stored generated ones if $3.
SELECT n.nspname::text, c.relname::text,
       array_agg(a.attname::text) FILTER (WHERE a.attgenerated = '' OR (a.attgenerated = 's' AND $3))
FROM unnest($1::text[], $2::text[]) AS wanted (schema, name)
JOIN pg_namespace n ON n.nspname = wanted.schema
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
GROUP BY c.oid, n.nspname, c.relname
