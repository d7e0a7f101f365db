SELECT t0."id"::text, concat('{"name":', coalesce(to_json(t0."name")::text, 'null'), '}')
FROM "public"."users" AS t0
WHERE t0.ctid >= format('(%s,0)', $1::int8)::tid AND t0.ctid < format('(%s,0)', $2::int8)::tid AND t0."email" OPERATOR("public".=) 'A@b' AND (SELECT (name <> 'x') FROM (SELECT t0.*) AS "users") AND (t0."deleted_at" IS NOT NULL AND t0."id" >= '5') IS NOT TRUE
