-- pg_partition_tree would wait for a lock on each partition that somebody alters.
WITH RECURSIVE part (oid, relkind) AS (
    SELECT c.oid, c.relkind FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = $1 AND c.relname = $2 AND (c.relkind = 'p' OR c.relispartition)
    UNION ALL
    SELECT c.oid, c.relkind
    FROM part JOIN pg_inherits i ON i.inhparent = part.oid AND NOT i.inhdetachpending
    JOIN pg_class c ON c.oid = i.inhrelid
    WHERE part.relkind = 'p'
)
SELECT oid::bigint FROM part WHERE relkind <> 'p'
