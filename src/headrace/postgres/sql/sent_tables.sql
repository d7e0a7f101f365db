-- The tables that a publication ($1) sends, each with its topmost table, its sent columns and whether its rows
-- are filtered. It tells what pg_publication_tables tells, which waits from PostgreSQL 16 on for a lock on each
-- table that somebody alters. Partitions stand for a partitioned table unless pubviaroot; a table's columns and
-- rows are those of its own membership alone. Before PostgreSQL 15 memberships have neither, and here they are
-- NULL. FOR ALL TABLES leaves out what initdb has made: oids below 16384.
WITH RECURSIVE publication AS (
    SELECT p.oid, p.puballtables, p.pubviaroot, to_jsonb(p) ->> 'pubgencols' AS generated
    FROM pg_publication p WHERE p.pubname = $1
),
-- FOR TABLES IN SCHEMA: pg_publication_namespace, seen through pg_depend, which servers before 15 have too.
published_schema (oid) AS (
    SELECT s.refobjid
    FROM publication p
    JOIN pg_depend d ON d.refclassid = 'pg_publication'::regclass AND d.refobjid = p.oid
    JOIN pg_depend s ON (s.classid, s.objid) = (d.classid, d.objid) AND s.refclassid = 'pg_namespace'::regclass
    WHERE d.classid = to_regclass('pg_catalog.pg_publication_namespace')
),
named (oid) AS (
    SELECT r.prrelid FROM pg_publication_rel r JOIN publication p ON p.oid = r.prpubid
    UNION
    SELECT c.oid
    FROM publication p
    JOIN pg_class c ON p.puballtables OR c.relnamespace IN (SELECT oid FROM published_schema)
    WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND c.oid >= 16384
),
part (oid, relkind) AS (
    SELECT c.oid, c.relkind FROM named JOIN pg_class c USING (oid)
    UNION
    SELECT c.oid, c.relkind
    FROM part JOIN pg_inherits i ON i.inhparent = part.oid AND NOT i.inhdetachpending
    JOIN pg_class c ON c.oid = i.inhrelid
    WHERE part.relkind = 'p'
),
sent AS (
    SELECT part.oid FROM part, publication p WHERE NOT p.pubviaroot AND part.relkind <> 'p'
    UNION
    SELECT named.oid FROM named, publication p
    WHERE p.pubviaroot AND NOT EXISTS (
        SELECT FROM pg_partition_ancestors(named.oid) AS above (oid)
        WHERE above.oid <> named.oid AND above.oid IN (SELECT oid FROM named))
)
SELECT n.nspname::text, c.relname::text, rn.nspname::text, rc.relname::text,
       -- The view of PostgreSQL 15 names stored generated columns too, which no server before 18 sends.
       (SELECT array_agg(a.attname::text ORDER BY a.attnum)
        FROM pg_attribute a, publication p
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
          AND CASE WHEN member.listed IS NOT NULL THEN member.listed @> to_jsonb(a.attnum)
                   ELSE a.attgenerated = '' OR (a.attgenerated = 's' AND p.generated = 's') END),
       coalesce(member.filtered, false)
FROM sent
JOIN pg_class c USING (oid)
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_class rc ON rc.oid = coalesce(pg_partition_root(c.oid), c.oid)
JOIN pg_namespace rn ON rn.oid = rc.relnamespace
LEFT JOIN (
    SELECT r.prrelid, nullif(to_jsonb(r) -> 'prattrs', 'null') AS listed,
           to_jsonb(r) ->> 'prqual' IS NOT NULL AS filtered
    FROM pg_publication_rel r JOIN publication p ON p.oid = r.prpubid
) AS member ON member.prrelid = c.oid
