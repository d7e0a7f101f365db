-- The columns that the row filters of a publication ($1) read.
SELECT a.attname::text
FROM pg_publication_rel r
JOIN pg_publication p ON p.oid = r.prpubid AND p.pubname = $1
JOIN pg_depend d ON d.classid = 'pg_publication_rel'::regclass AND d.objid = r.oid
     AND d.refclassid = 'pg_class'::regclass AND d.refobjid = r.prrelid AND d.refobjsubid > 0
JOIN pg_attribute a ON a.attrelid = r.prrelid AND a.attnum = d.refobjsubid
