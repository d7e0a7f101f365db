WITH r0 AS (SELECT t0."id", t0."name"
FROM "public"."users" AS t0
WHERE t0.ctid >= format('(%s,0)', $1::int8)::tid AND t0.ctid < format('(%s,0)', $2::int8)::tid AND t0."email" OPERATOR("public".=) 'A@b' AND (SELECT (name <> 'x') FROM (SELECT t0.*) AS "users") AND (t0."deleted_at" IS NOT NULL AND t0."id" >= '5') IS NOT TRUE), r1 AS (SELECT * FROM (SELECT k.l0, t1."user_id", t1."id" FROM (SELECT DISTINCT t0."id" AS l0 FROM r0 AS t0) AS k FULL JOIN "public"."orders" AS t1 ON t1."user_id" = k.l0 OFFSET 0) AS t1 WHERE t1.l0 IS DISTINCT FROM NULL AND t1."user_id" IS DISTINCT FROM NULL), g1 AS (SELECT t1.l0, count(*)::text AS lv
FROM r1 AS t1 GROUP BY t1.l0)
SELECT t0."id"::text, concat('{"name":', coalesce(to_json(t0."name")::text, 'null'), ',"n":', coalesce(g1.lv, '0'), '}')
FROM r0 AS t0
FULL JOIN g1 ON g1.l0 = t0."id"
