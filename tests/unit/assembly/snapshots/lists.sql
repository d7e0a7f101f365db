WITH requested AS (SELECT k.k0::pg_catalog."int8" AS k0 FROM unnest($1::text[]) AS k (k0))
SELECT t0."id"::text, concat('{"orders":', (SELECT concat('[', string_agg(concat('{"o":{"total":', coalesce(CASE WHEN t1."total" < 'Infinity' AND t1."total" > '-Infinity' THEN t1."total"::text END, 'null'), ',"c":7},"items":', (SELECT concat('[', string_agg(concat('{"product":', coalesce((SELECT concat('{"name":', coalesce(to_json(t3."name")::text, 'null'), '}') FROM "public"."products" AS t3 WHERE t3."sku" = t2."product_sku"), 'null'), '}'), ',' ORDER BY t2."order_id", t2."pos"), ']') FROM "public"."items" AS t2 WHERE t2."order_id" = t1."id"), '}'), ',' ORDER BY t1."placed_at" DESC NULLS FIRST, t1."id"), ']') FROM (SELECT t1.* FROM (SELECT * FROM "public"."orders" WHERE (open)) AS t1 WHERE t1."user_id" = t0."id" AND t1."id" IN ('1', '2') ORDER BY t1."placed_at" DESC NULLS FIRST, t1."id" LIMIT 3) AS t1), '}')
FROM (SELECT DISTINCT k0 FROM requested) AS k JOIN "public"."users" AS t0 ON t0."id" = k.k0
UNION ALL
SELECT DISTINCT k.k0::text, NULL FROM requested AS k
WHERE NOT EXISTS (SELECT FROM "public"."users" AS t0 WHERE t0."id" = k.k0 AND t0."id"::text = k.k0::text)
