-- The facts of tables ($1 schemas, $2 names), and of each leaf of a partitioned one; see IdentityFacts.
WITH RECURSIVE named AS (
    SELECT c.oid, c.oid AS root
    FROM unnest($1::text[], $2::text[]) AS wanted (schema, name)
    JOIN pg_namespace n ON n.nspname = wanted.schema
    JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
    UNION
    SELECT i.inhrelid, named.root
    FROM named JOIN pg_class parent ON parent.oid = named.oid AND parent.relkind = 'p'
    JOIN pg_inherits i ON i.inhparent = named.oid
)
SELECT rn.nspname::text, rc.relname::text, n.nspname::text, c.relname::text,
       c.relkind::text, c.relpersistence::text, c.relreplident::text,
       pg_has_role(c.relowner, 'USAGE'),
    (SELECT coalesce(json_agg(json_build_array(a.attname, a.attnotnull, a.attgenerated)
                              ORDER BY a.attnum), '[]')
     FROM pg_attribute a
     WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
    (SELECT coalesce(json_agg(json_build_array(ic.relname, (
                SELECT json_agg(a.attname ORDER BY k.place)
                FROM unnest(x.indkey::int2[]) WITH ORDINALITY AS k (attnum, place)
                JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
                WHERE k.place <= x.indnkeyatts), x.indisprimary, x.indisreplident)
            ORDER BY x.indisprimary DESC, ic.relname), '[]')
     FROM pg_index x JOIN pg_class ic ON ic.oid = x.indexrelid
     WHERE x.indrelid = c.oid AND x.indisunique AND x.indisvalid AND x.indimmediate
       AND x.indpred IS NULL AND x.indexprs IS NULL),
    -- What servers before PostgreSQL 15 (prattrs) and 18 (pubgencols) do not have is read from the row as JSON.
    (SELECT coalesce(json_agg(json_build_array(p.pubname, (
                SELECT json_agg(a.attname) FROM pg_attribute a
                WHERE a.attrelid = c.oid AND m.listed @> to_jsonb(a.attnum)))), '[]')
     FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
          CROSS JOIN LATERAL (SELECT nullif(to_jsonb(r) -> 'prattrs', 'null')) AS m (listed)
     WHERE m.listed IS NOT NULL
       AND (r.prrelid = c.oid OR r.prrelid IN (SELECT relid FROM pg_partition_ancestors(c.oid)))),
    -- Where there is a column list, it alone decides which columns are sent.
    (SELECT coalesce(json_agg(DISTINCT p.pubname), '[]')
     FROM pg_publication p,
          LATERAL (SELECT c.oid UNION SELECT relid FROM pg_partition_ancestors(c.oid)) AS above (oid)
          JOIN pg_class o ON o.oid = above.oid
     WHERE to_jsonb(p) ->> 'pubgencols' <> 's' AND (p.pubupdate OR p.pubdelete)
       AND (p.puballtables AND o.oid = c.oid
            OR EXISTS (SELECT FROM pg_publication_rel r
                       WHERE r.prpubid = p.oid AND r.prrelid = o.oid
                         AND nullif(to_jsonb(r) -> 'prattrs', 'null') IS NULL)
            -- FOR TABLES IN SCHEMA: pg_publication_namespace, as pg_depend shows it.
            OR EXISTS (SELECT FROM pg_depend d JOIN pg_depend s USING (classid, objid)
                       WHERE d.classid = to_regclass('pg_catalog.pg_publication_namespace')
                         AND d.refclassid = 'pg_publication'::regclass AND d.refobjid = p.oid
                         AND s.refclassid = 'pg_namespace'::regclass AND s.refobjid = o.relnamespace)))
FROM named
JOIN pg_class c ON c.oid = named.oid AND (c.relkind <> 'p' OR NOT EXISTS (
    SELECT FROM pg_inherits i WHERE i.inhparent = c.oid))
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_class rc ON rc.oid = named.root JOIN pg_namespace rn ON rn.oid = rc.relnamespace
ORDER BY 1, 2, 3, 4
