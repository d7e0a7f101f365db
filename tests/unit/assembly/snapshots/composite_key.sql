WITH requested AS (SELECT k.k0::pg_catalog."int4" AS k0, k.k1::pg_catalog."int8" AS k1 FROM unnest($1::text[], $2::text[]) AS k (k0, k1))
SELECT replace(replace(t0."pos"::text, '%', '%25'), ':', '%3A') || ':' || replace(replace(t0."order_id"::text, '%', '%25'), ':', '%3A'), concat('{"pos":', coalesce(t0."pos"::text, 'null'), '}')
FROM (SELECT DISTINCT k0, k1 FROM requested) AS k JOIN "public"."items" AS t0 ON t0."pos" = k.k0 AND t0."order_id" = k.k1
UNION ALL
SELECT DISTINCT replace(replace(k.k0::text, '%', '%25'), ':', '%3A') || ':' || replace(replace(k.k1::text, '%', '%25'), ':', '%3A'), NULL FROM requested AS k
WHERE NOT EXISTS (SELECT FROM "public"."items" AS t0 WHERE t0."pos" = k.k0 AND t0."order_id" = k.k1 AND replace(replace(t0."pos"::text, '%', '%25'), ':', '%3A') || ':' || replace(replace(t0."order_id"::text, '%', '%25'), ':', '%3A') = replace(replace(k.k0::text, '%', '%25'), ':', '%3A') || ':' || replace(replace(k.k1::text, '%', '%25'), ':', '%3A'))
