-- A constraint that repeats another one of the same table, for a partition of its target, is left out.
SELECT k.conrelid::bigint, n.nspname::text, c.relname::text,
       ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY AS u (attnum, position)
             JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.attnum ORDER BY u.position),
       ARRAY(SELECT a.attname::text FROM unnest(k.confkey) WITH ORDINALITY AS u (attnum, position)
             JOIN pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = u.attnum ORDER BY u.position),
       k.convalidated AND coalesce((to_jsonb(k) ->> 'conenforced')::boolean, true)
FROM pg_constraint k
JOIN pg_class c ON c.oid = k.confrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_constraint parent ON parent.oid = k.conparentid
WHERE k.contype = 'f' AND k.conrelid = ANY ($1::text[]::oid[])
  -- A key with PERIOD (PostgreSQL 18) finds its row by ranges that contain others.
  AND NOT coalesce((to_jsonb(k) ->> 'conperiod')::boolean, false)
  AND parent.conrelid IS DISTINCT FROM k.conrelid
ORDER BY k.conrelid, k.conname
