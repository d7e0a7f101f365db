-- pg_get_expr of a table would wait for a lock on it; bounds name no column.
WITH RECURSIVE part (root, oid, relkind, path) AS (
    SELECT c.oid, c.oid, c.relkind, '[]'::jsonb FROM pg_class c WHERE c.oid = ANY ($1::text[]::oid[])
    UNION ALL
    SELECT part.root, c.oid, c.relkind,
           part.path || jsonb_build_array(jsonb_build_array(
               coalesce((
                   SELECT of_root.attnum::int
                   FROM pg_attribute own JOIN pg_attribute of_root ON of_root.attname = own.attname
                   WHERE own.attrelid = part.oid AND own.attnum = p.partattrs[0]
                     AND of_root.attrelid = part.root AND NOT of_root.attisdropped AND p.partnatts = 1
                     AND (SELECT o.opcdefault FROM pg_opclass o WHERE o.oid = p.partclass[0])
                     AND (p.partcollation[0] = 0 OR (p.partcollation[0] = own.attcollation AND (
                         SELECT l.collisdeterministic FROM pg_collation l WHERE l.oid = own.attcollation)))
               ), 0), p.partstrat::text, pg_get_expr(c.relpartbound, 0)))
    FROM part
    JOIN pg_partitioned_table p ON p.partrelid = part.oid
    JOIN pg_inherits i ON i.inhparent = part.oid AND NOT i.inhdetachpending
    JOIN pg_class c ON c.oid = i.inhrelid
    WHERE part.relkind = 'p'
)
SELECT root::bigint, oid::bigint, path::text FROM part WHERE relkind <> 'p' AND root <> oid
