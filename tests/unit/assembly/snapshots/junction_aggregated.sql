WITH requested AS (SELECT k.k0::pg_catalog."int8" AS k0 FROM unnest($1::text[]) AS k (k0)), r0 AS (SELECT t0."id"
FROM (SELECT DISTINCT k0 FROM requested) AS k JOIN "public"."users" AS t0 ON t0."id" = k.k0), r1 AS (WITH p AS (SELECT DISTINCT j.l0, j.r FROM (SELECT * FROM (SELECT k.l0, j."user_id" AS m, j."tag_name" AS r FROM (SELECT DISTINCT t0."id" AS l0 FROM r0 AS t0) AS k FULL JOIN "public"."user_tags" AS j ON j."user_id" = k.l0 OFFSET 0) AS j WHERE j.l0 IS DISTINCT FROM NULL AND j.m IS DISTINCT FROM NULL) AS j) SELECT * FROM (SELECT p.l0, t1.* FROM p FULL JOIN (SELECT k.lr, t1.* FROM (SELECT DISTINCT p.r AS lr FROM p) AS k CROSS JOIN LATERAL (SELECT t1."name", t1."rank" FROM "public"."tags" AS t1 WHERE k.lr OPERATOR("public".=) t1."name" OFFSET 0) AS t1) AS t1 ON p.r OPERATOR("public".=) t1.lr OFFSET 0) AS t1 WHERE t1."name" IS DISTINCT FROM NULL), g1 AS (SELECT t1.l0, concat('[', string_agg(concat('{"rank":', coalesce(t1."rank"::text, 'null'), '}'), ',' ORDER BY t1."name" COLLATE "C"), ']') AS lv
FROM r1 AS t1 GROUP BY t1.l0)
SELECT t0."id"::text, concat('{"tags":', coalesce(g1.lv, '[]'), '}')
FROM r0 AS t0
FULL JOIN g1 ON g1.l0 = t0."id"
UNION ALL
SELECT DISTINCT k.k0::text, NULL FROM requested AS k
WHERE NOT EXISTS (SELECT FROM "public"."users" AS t0 WHERE t0."id" = k.k0 AND t0."id"::text = k.k0::text)
