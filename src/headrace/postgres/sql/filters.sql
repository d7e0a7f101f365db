-- The row filters that a publication ($1) has on tables ($2 schemas, $3 names).
-- pg_publication_tables would wait for a lock on each table that somebody alters.
SELECT n.nspname::text, c.relname::text, pg_get_expr(r.prqual, r.prrelid)
FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE p.pubname = $1 AND r.prqual IS NOT NULL
      AND (n.nspname, c.relname) IN (SELECT * FROM unnest($2::text[], $3::text[]))
