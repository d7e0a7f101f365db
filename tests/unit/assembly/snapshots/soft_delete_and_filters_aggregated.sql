WITH requested AS (SELECT k.k0::pg_catalog."int8" AS k0 FROM unnest($1::text[]) AS k (k0)), r0 AS (SELECT t0."id", t0."name", t0."email" OPERATOR("public".=) 'A@b' AND (SELECT (name <> 'x') FROM (SELECT t0.*) AS "users") AND (t0."deleted_at" IS NOT NULL AND t0."id" >= '5') IS NOT TRUE AS llive
FROM (SELECT DISTINCT k0 FROM requested) AS k JOIN "public"."users" AS t0 ON t0."id" = k.k0), r1 AS (SELECT * FROM (SELECT k.l0, t1."user_id", t1."id" FROM (SELECT DISTINCT t0."id" AS l0 FROM r0 AS t0 WHERE t0.llive) AS k FULL JOIN "public"."orders" AS t1 ON t1."user_id" = k.l0 OFFSET 0) AS t1 WHERE t1.l0 IS DISTINCT FROM NULL AND t1."user_id" IS DISTINCT FROM NULL), g1 AS (SELECT t1.l0, count(*)::text AS lv
FROM r1 AS t1 GROUP BY t1.l0)
SELECT t0."id"::text, CASE WHEN t0.llive THEN concat('{"name":', coalesce(to_json(t0."name")::text, 'null'), ',"n":', coalesce(g1.lv, '0'), '}') END
FROM r0 AS t0
FULL JOIN g1 ON g1.l0 = t0."id"
UNION ALL
SELECT DISTINCT k.k0::text, NULL FROM requested AS k
WHERE NOT EXISTS (SELECT FROM "public"."users" AS t0 WHERE t0."id" = k.k0 AND t0."id"::text = k.k0::text)
