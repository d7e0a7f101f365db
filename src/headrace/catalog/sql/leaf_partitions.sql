-- pg_partition_tree would wait for a lock on each partition that somebody alters.
WITH RECURSIVE part (root, oid, relkind) AS (
    SELECT root.oid, root.oid, 'p'::"char" FROM unnest($1::text[]::oid[]) AS root (oid)
    UNION ALL
    SELECT part.root, c.oid, c.relkind
    FROM part JOIN pg_inherits i ON i.inhparent = part.oid AND NOT i.inhdetachpending
    JOIN pg_class c ON c.oid = i.inhrelid
    WHERE part.relkind = 'p'
)
SELECT part.root::bigint, n.nspname::text, c.relname::text, c.oid::bigint, c.relreplident::text,
       greatest(c.reltuples, 0)::bigint, greatest(c.relpages, 0)::bigint
FROM part JOIN pg_class c ON c.oid = part.oid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE part.relkind <> 'p'
ORDER BY 1, 2, 3
