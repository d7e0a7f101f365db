-- Every type that is reached from the tables' columns, each once, with its fields. A type is an array only if
-- its element type names it as its array: int2vector is none.
WITH RECURSIVE wanted AS (
    SELECT c.oid, n.nspname::text AS schema, c.relname::text AS name
    FROM unnest($1::text[], $2::text[]) AS given (nspname, relname)
    JOIN pg_namespace n ON n.nspname = given.nspname
    JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = given.relname
),
typed AS NOT MATERIALIZED (
    SELECT t.oid, t.typname, t.typnamespace, t.typrelid, t.typtypmod, t.typndims, t.typdelim,
           k.kind,
           CASE k.kind
               WHEN 'domain' THEN t.typbasetype
               WHEN 'array' THEN t.typelem
               WHEN 'range' THEN (SELECT r.rngsubtype FROM pg_range r WHERE r.rngtypid = t.oid)
               WHEN 'multirange' THEN (SELECT r.rngtypid FROM pg_range r WHERE r.rngmultitypid = t.oid)
               ELSE 0::oid
           END AS of
    FROM pg_type t
    CROSS JOIN LATERAL (SELECT CASE
        WHEN t.typtype = 'd' THEN 'domain'
        WHEN t.typtype = 'e' THEN 'enum'
        WHEN t.typtype = 'r' THEN 'range'
        WHEN t.typtype = 'm' THEN 'multirange'
        WHEN t.typtype = 'c' THEN 'composite'
        WHEN t.oid = (SELECT e.typarray FROM pg_type e WHERE e.oid = t.typelem) THEN 'array'
        ELSE 'base'
    END AS kind) AS k
),
attribute AS NOT MATERIALIZED (
    SELECT a.attrelid, a.attnum, a.attname::text AS name, a.atttypid, a.atttypmod, a.attndims
    FROM pg_attribute a
    WHERE a.attnum > 0 AND NOT a.attisdropped
),
reached (oid) AS (
    SELECT a.atttypid FROM wanted JOIN attribute a ON a.attrelid = wanted.oid
    UNION
    SELECT next.oid
    FROM reached
    JOIN typed t ON t.oid = reached.oid
    CROSS JOIN LATERAL (
        SELECT t.of AS oid WHERE t.of <> 0
        UNION ALL
        SELECT a.atttypid FROM attribute a WHERE t.kind = 'composite' AND a.attrelid = t.typrelid
    ) AS next
)
SELECT t.oid::bigint, n.nspname::text, t.typname::text, t.kind, coalesce(t.of, 0)::bigint,
       t.typtypmod, t.typndims, t.typdelim::text,
       coalesce((
           SELECT e.extname::text FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
           WHERE d.classid = 'pg_type'::regclass AND d.objid = t.oid
             AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
       ), ''),
       f.fields
FROM reached JOIN typed t ON t.oid = reached.oid
JOIN pg_namespace n ON n.oid = t.typnamespace
CROSS JOIN LATERAL (
    SELECT json_agg(json_build_array(a.name, a.atttypid::bigint, a.atttypmod, a.attndims)
                    ORDER BY a.attnum) AS fields
    FROM attribute a WHERE t.kind = 'composite' AND a.attrelid = t.typrelid
) AS f
UNION ALL
SELECT 0, wanted.schema, wanted.name, '', 0, scale(1::money::numeric), 0, '', '',
       json_agg(json_build_array(a.name, a.atttypid::bigint, a.atttypmod, a.attndims) ORDER BY a.attnum)
           FILTER (WHERE a.attnum IS NOT NULL)
FROM wanted LEFT JOIN attribute a ON a.attrelid = wanted.oid
GROUP BY wanted.schema, wanted.name
