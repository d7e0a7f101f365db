WITH requested AS (SELECT k.k0::pg_catalog."int8" AS k0 FROM unnest($1::text[]) AS k (k0))
SELECT t0."id"::text, concat('{"id":', coalesce(t0."id"::text, 'null'), ',"name":', coalesce(to_json(lower(btrim(t0."name"::text, E' \t\n\r\f\v')))::text, E'"it''s \\\\ none"'), '}')
FROM (SELECT DISTINCT k0 FROM requested) AS k JOIN "public"."users" AS t0 ON t0."id" = k.k0
UNION ALL
SELECT DISTINCT k.k0::text, NULL FROM requested AS k
WHERE NOT EXISTS (SELECT FROM "public"."users" AS t0 WHERE t0."id" = k.k0 AND t0."id"::text = k.k0::text)
