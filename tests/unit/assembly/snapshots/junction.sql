WITH requested AS (SELECT k.k0::pg_catalog."int8" AS k0 FROM unnest($1::text[]) AS k (k0))
SELECT t0."id"::text, concat('{"tags":', (SELECT concat('[', string_agg(concat('{"rank":', coalesce(t1."rank"::text, 'null'), '}'), ',' ORDER BY t1."name" COLLATE "C"), ']') FROM "public"."tags" AS t1 WHERE EXISTS (SELECT FROM "public"."user_tags" AS j1 WHERE j1."user_id" = t0."id" AND j1."tag_name" OPERATOR("public".=) t1."name")), '}')
FROM (SELECT DISTINCT k0 FROM requested) AS k JOIN "public"."users" AS t0 ON t0."id" = k.k0
UNION ALL
SELECT DISTINCT k.k0::text, NULL FROM requested AS k
WHERE NOT EXISTS (SELECT FROM "public"."users" AS t0 WHERE t0."id" = k.k0 AND t0."id"::text = k.k0::text)
