SELECT t0."id"::text, concat('{"name":', coalesce(to_json(t0."name")::text, 'null'), ',"n":', (SELECT count(*)::text FROM "public"."orders" AS t1 WHERE t1."user_id" = t0."id"), '}'), coalesce(nullif(t0."boss_id"::text, ''), t0."id"::text)
FROM "public"."users" AS t0
WHERE t0.ctid >= format('(%s,0)', $1::int8)::tid AND t0.ctid < format('(%s,0)', $2::int8)::tid
