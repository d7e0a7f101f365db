WITH requested AS (SELECT k.k0::pg_catalog."int8" AS k0 FROM unnest($1::text[]) AS k (k0)), r0 AS (SELECT t0."id"
FROM (SELECT DISTINCT k0 FROM requested) AS k JOIN "public"."users" AS t0 ON t0."id" = k.k0), r1 AS (SELECT * FROM (SELECT t1.*, row_number() OVER (PARTITION BY t1.l0 ORDER BY t1."placed_at" DESC NULLS FIRST, t1."id") AS ln FROM (SELECT * FROM (SELECT k.l0, t1."user_id", t1."id", t1."placed_at", t1."total" FROM (SELECT DISTINCT t0."id" AS l0 FROM r0 AS t0) AS k FULL JOIN (SELECT t1.* FROM (SELECT * FROM "public"."orders" WHERE (open)) AS t1 WHERE t1."id" IN ('1', '2')) AS t1 ON t1."user_id" = k.l0 OFFSET 0) AS t1 WHERE t1.l0 IS DISTINCT FROM NULL AND t1."user_id" IS DISTINCT FROM NULL) AS t1) AS t1 WHERE t1.ln <= 3), r2 AS (SELECT k.l0, t2.* FROM (SELECT DISTINCT t1."id" AS l0 FROM r1 AS t1) AS k CROSS JOIN LATERAL (SELECT t2."order_id", t2."pos", t2."product_sku" FROM "public"."items" AS t2 WHERE t2."order_id" = k.l0 OFFSET 0) AS t2), r3 AS (SELECT k.l0, t3.* FROM (SELECT DISTINCT t2."product_sku" AS l0 FROM r2 AS t2) AS k CROSS JOIN LATERAL (SELECT t3."sku", t3."name" FROM "public"."products" AS t3 WHERE t3."sku" = k.l0 OFFSET 0) AS t3), g3 AS (SELECT t3.l0, concat('{"name":', coalesce(to_json(t3."name")::text, 'null'), '}') AS lv
FROM r3 AS t3), g2 AS (SELECT t2.l0, concat('[', string_agg(concat('{"product":', coalesce(g3.lv, 'null'), '}'), ',' ORDER BY t2."order_id", t2."pos"), ']') AS lv
FROM r2 AS t2
FULL JOIN g3 ON g3.l0 = t2."product_sku" GROUP BY t2.l0), g1 AS (SELECT t1.l0, concat('[', string_agg(concat('{"o":{"total":', coalesce(CASE WHEN t1."total" < 'Infinity' AND t1."total" > '-Infinity' THEN t1."total"::text END, 'null'), ',"c":7},"items":', coalesce(g2.lv, '[]'), '}'), ',' ORDER BY t1."placed_at" DESC NULLS FIRST, t1."id"), ']') AS lv
FROM r1 AS t1
FULL JOIN g2 ON g2.l0 = t1."id" GROUP BY t1.l0)
SELECT t0."id"::text, concat('{"orders":', coalesce(g1.lv, '[]'), '}')
FROM r0 AS t0
FULL JOIN g1 ON g1.l0 = t0."id"
UNION ALL
SELECT DISTINCT k.k0::text, NULL FROM requested AS k
WHERE NOT EXISTS (SELECT FROM "public"."users" AS t0 WHERE t0."id" = k.k0 AND t0."id"::text = k.k0::text)
