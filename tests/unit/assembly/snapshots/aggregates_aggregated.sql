WITH requested AS (SELECT k.k0::pg_catalog."int8" AS k0 FROM unnest($1::text[]) AS k (k0)), r0 AS (SELECT t0."id"
FROM (SELECT DISTINCT k0 FROM requested) AS k JOIN "public"."users" AS t0 ON t0."id" = k.k0), r1 AS (SELECT * FROM (SELECT k.l0, t1."user_id", t1."id" FROM (SELECT DISTINCT t0."id" AS l0 FROM r0 AS t0) AS k FULL JOIN "public"."orders" AS t1 ON t1."user_id" = k.l0 OFFSET 0) AS t1 WHERE t1.l0 IS DISTINCT FROM NULL AND t1."user_id" IS DISTINCT FROM NULL), g1 AS (SELECT t1.l0, count(*)::text AS lv
FROM r1 AS t1 GROUP BY t1.l0), r2 AS (SELECT * FROM (SELECT k.l0, t1."user_id", t1."id", t1."total" FROM (SELECT DISTINCT t0."id" AS l0 FROM r0 AS t0) AS k FULL JOIN "public"."orders" AS t1 ON t1."user_id" = k.l0 OFFSET 0) AS t1 WHERE t1.l0 IS DISTINCT FROM NULL AND t1."user_id" IS DISTINCT FROM NULL), g2 AS (SELECT t1.l0, coalesce(CASE WHEN sum(t1."total")::numeric < 'Infinity' AND sum(t1."total")::numeric > '-Infinity' THEN sum(t1."total")::numeric::text END, 'null') AS lv
FROM r2 AS t1 GROUP BY t1.l0), r3 AS (SELECT * FROM (SELECT k.l0, t1."user_id", t1."id", t1."total" FROM (SELECT DISTINCT t0."id" AS l0 FROM r0 AS t0) AS k FULL JOIN "public"."orders" AS t1 ON t1."user_id" = k.l0 OFFSET 0) AS t1 WHERE t1.l0 IS DISTINCT FROM NULL AND t1."user_id" IS DISTINCT FROM NULL), g3 AS (SELECT t1.l0, coalesce((SELECT CASE WHEN abs(s.mean) <= 1.7976931348623157e308 THEN s.mean::float8::text END FROM (SELECT round(sum(t1."total"::numeric), 30) / nullif(count(t1."total"), 0) AS mean) AS s), 'null') AS lv
FROM r3 AS t1 GROUP BY t1.l0), r4 AS (SELECT * FROM (SELECT k.l0, t1."user_id", t1."id", t1."placed_at" FROM (SELECT DISTINCT t0."id" AS l0 FROM r0 AS t0) AS k FULL JOIN "public"."orders" AS t1 ON t1."user_id" = k.l0 OFFSET 0) AS t1 WHERE t1.l0 IS DISTINCT FROM NULL AND t1."user_id" IS DISTINCT FROM NULL), g4 AS (SELECT t1.l0, coalesce(CASE WHEN isfinite(max(t1."placed_at")) THEN to_json(max(t1."placed_at"))::text END, 'null') AS lv
FROM r4 AS t1 GROUP BY t1.l0), r5 AS (WITH p AS (SELECT DISTINCT j.l0, j.r FROM (SELECT * FROM (SELECT k.l0, j."user_id" AS m, j."tag_name" AS r FROM (SELECT DISTINCT t0."id" AS l0 FROM r0 AS t0) AS k FULL JOIN "public"."user_tags" AS j ON j."user_id" = k.l0 OFFSET 0) AS j WHERE j.l0 IS DISTINCT FROM NULL AND j.m IS DISTINCT FROM NULL) AS j) SELECT * FROM (SELECT p.l0, t1.* FROM p FULL JOIN (SELECT k.lr, t1.* FROM (SELECT DISTINCT p.r AS lr FROM p) AS k CROSS JOIN LATERAL (SELECT t1."name" FROM "public"."tags" AS t1 WHERE k.lr OPERATOR("public".=) t1."name" OFFSET 0) AS t1) AS t1 ON p.r OPERATOR("public".=) t1.lr OFFSET 0) AS t1 WHERE t1."name" IS DISTINCT FROM NULL), g5 AS (SELECT t1.l0, concat('[', string_agg(coalesce(to_json(t1."name")::text, 'null'), ',' ORDER BY t1."name" COLLATE "C"), ']') AS lv
FROM r5 AS t1 GROUP BY t1.l0)
SELECT t0."id"::text, concat('{"n":', coalesce(g1.lv, '0'), ',"sum":', coalesce(g2.lv, 'null'), ',"avg":', coalesce(g3.lv, 'null'), ',"max":', coalesce(g4.lv, 'null'), ',"ids":', coalesce(g5.lv, '[]'), '}')
FROM r0 AS t0
FULL JOIN g1 ON g1.l0 = t0."id"
FULL JOIN g2 ON g2.l0 = t0."id"
FULL JOIN g3 ON g3.l0 = t0."id"
FULL JOIN g4 ON g4.l0 = t0."id"
FULL JOIN g5 ON g5.l0 = t0."id"
UNION ALL
SELECT DISTINCT k.k0::text, NULL FROM requested AS k
WHERE NOT EXISTS (SELECT FROM "public"."users" AS t0 WHERE t0."id" = k.k0 AND t0."id"::text = k.k0::text)
