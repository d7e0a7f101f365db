-- PostgreSQL keeps the default of an added column beside the table, of a partitioned one beside each of its
-- partitions: rows that were there before have it, and the log says nothing of them. A rewrite of the table
-- (another filenode) puts it into the rows.
-- pg_partition_tree would wait for a lock on each partition that somebody alters.
WITH RECURSIVE wanted (oid, nspname) AS (
    SELECT c.oid, n.nspname
    FROM unnest($1::text[], $2::text[]) AS wanted (nspname, relname)
    JOIN pg_namespace n ON n.nspname = wanted.nspname
    JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.relname
),
part (root, oid, relkind) AS (
    SELECT c.oid, c.oid, c.relkind FROM wanted JOIN pg_class c USING (oid)
    UNION ALL
    SELECT part.root, c.oid, c.relkind
    FROM part JOIN pg_inherits i ON i.inhparent = part.oid AND NOT i.inhdetachpending
    JOIN pg_class c ON c.oid = i.inhrelid
    WHERE part.relkind = 'p'
),
leaf AS MATERIALIZED (
    SELECT part.root, part.oid FROM part WHERE part.relkind <> 'p'
)
SELECT wanted.nspname::text, c.relname::text,
       json_strip_nulls(json_object_agg(a.attname, coalesce(
           (a.attmissingval::text::text[])[1],
           (SELECT max((own.attmissingval::text::text[])[1])
            FROM leaf JOIN pg_attribute own ON own.attrelid = leaf.oid AND own.attname = a.attname
            WHERE leaf.root = c.oid)))),
       EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND NOT i.indimmediate),
       array_remove(array_agg(CASE WHEN a.attgenerated = 's' THEN a.attname::text END), NULL)
FROM wanted JOIN pg_class c USING (oid)
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
GROUP BY c.oid, wanted.nspname, c.relname
