-- A column that was never analysed has no row. Of a partitioned table there are rows for the whole tree.
SELECT s.schemaname::text, s.tablename::text, s.attname::text, greatest(c.reltuples, 0)::float8, s.n_distinct,
       coalesce(s.most_common_freqs[1], 0)::float8
FROM unnest($1::text[], $2::text[], $3::text[]) AS wanted (schema, name, attribute)
JOIN pg_stats s ON s.schemaname = wanted.schema AND s.tablename = wanted.name AND s.attname = wanted.attribute
JOIN pg_namespace n ON n.nspname = s.schemaname
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = s.tablename
WHERE s.inherited = (c.relkind = 'p')
