-- Of several functions with one name the most volatile counts: the types decide which one is called.
SELECT n.nspname::text, p.proname::text, bool_or(p.provolatile = 'v'), bool_or(p.provolatile = 's')
FROM unnest($1::text[], $2::text[]) AS called (nspname, proname)
JOIN pg_namespace n ON n.nspname = called.nspname
JOIN pg_proc p ON p.pronamespace = n.oid AND p.proname = called.proname
WHERE p.prokind = 'f'
GROUP BY 1, 2
