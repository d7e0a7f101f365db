-- reltuples is -1 as long as nobody has analysed a table.
SELECT n.nspname::text, c.relname::text, c.oid::bigint, c.relkind::text, c.relreplident::text,
       greatest(c.reltuples, 0)::bigint, greatest(c.relpages, 0)::bigint,
       c.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid)
FROM unnest($1::text[], $2::text[]) AS wanted (nspname, relname)
JOIN pg_namespace n ON n.nspname = wanted.nspname
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.relname
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
