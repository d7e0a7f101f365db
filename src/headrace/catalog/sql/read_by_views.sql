SELECT DISTINCT r.ev_class::bigint, n.nspname::text, c.relname::text
FROM pg_rewrite r
JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
     AND d.refclassid = 'pg_class'::regclass AND d.refobjid <> r.ev_class
JOIN pg_class c ON c.oid = d.refobjid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE r.ev_class = ANY ($1::text[]::oid[])
ORDER BY 1, 2, 3
