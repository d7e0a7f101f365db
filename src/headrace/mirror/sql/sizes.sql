SELECT n.nspname::text, c.relname::text,
       CASE WHEN min(part.reltuples) >= 0 THEN sum(part.reltuples)::bigint END,
       sum(pg_table_size(part.oid))::bigint
FROM unnest($1::text[], $2::text[]) AS wanted (nspname, relname)
JOIN pg_namespace n ON n.nspname = wanted.nspname
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.relname
JOIN pg_class part ON part.relkind = 'r'
     AND (part.oid = c.oid OR part.oid IN (SELECT relid FROM pg_partition_tree(c.oid)))
GROUP BY n.nspname, c.relname
