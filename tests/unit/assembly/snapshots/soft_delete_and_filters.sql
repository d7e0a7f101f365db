WITH requested AS (SELECT k.k0::pg_catalog."int8" AS k0 FROM unnest($1::text[]) AS k (k0))
SELECT t0."id"::text, CASE WHEN t0."email" OPERATOR("public".=) 'A@b' AND (SELECT (name <> 'x') FROM (SELECT t0.*) AS "users") AND (t0."deleted_at" IS NOT NULL AND t0."id" >= '5') IS NOT TRUE THEN concat('{"name":', coalesce(to_json(t0."name")::text, 'null'), '}') END
FROM (SELECT DISTINCT k0 FROM requested) AS k JOIN "public"."users" AS t0 ON t0."id" = k.k0
UNION ALL
SELECT DISTINCT k.k0::text, NULL FROM requested AS k
WHERE NOT EXISTS (SELECT FROM "public"."users" AS t0 WHERE t0."id" = k.k0 AND t0."id"::text = k.k0::text)
