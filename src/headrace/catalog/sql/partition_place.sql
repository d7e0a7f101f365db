SELECT c.relispartition, root.followed, root.relid::bigint, rn.nspname::text, rc.relname::text
FROM pg_class c
CROSS JOIN LATERAL (
    SELECT ac.oid AS relid, wanted.name IS NOT NULL OR ac.oid = ANY ($5::text[]::oid[]) AS followed
    FROM (SELECT) AS here
    LEFT JOIN pg_partition_ancestors(c.oid) WITH ORDINALITY AS a (relid, distance) ON true
    LEFT JOIN pg_class ac ON ac.oid = coalesce(a.relid, c.oid)
    LEFT JOIN pg_namespace an ON an.oid = ac.relnamespace
    LEFT JOIN unnest($2::text[], $3::text[]) AS wanted (schema, name)
         ON an.nspname = wanted.schema AND ac.relname = wanted.name
    ORDER BY NOT (wanted.name IS NOT NULL OR ac.oid = ANY ($5::text[]::oid[])),
             CASE WHEN $4 OR NOT (wanted.name IS NOT NULL OR ac.oid = ANY ($5::text[]::oid[]))
                  THEN -a.distance ELSE a.distance END
    LIMIT 1
) AS root
JOIN pg_class rc ON rc.oid = root.relid JOIN pg_namespace rn ON rn.oid = rc.relnamespace
WHERE c.oid = $1::text::oid
