-- Every alteration of the key, the columns or their declared types changes this text.
SELECT n.nspname::text, c.relname::text, concat_ws(' ', c.oid, c.relreplident,
    (SELECT string_agg(concat_ws(':', a.attnum, a.atttypid, a.atttypmod, a.attname), ',' ORDER BY a.attnum)
     FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
    (SELECT string_agg(concat_ws(':', indexrelid, indisprimary, indisreplident), ',' ORDER BY indexrelid)
     FROM pg_index WHERE indrelid = c.oid),
    (SELECT string_agg(concat_ws(':', r.oid, r.xmin), ',' ORDER BY r.oid)
     FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
     WHERE p.pubname = $3 AND r.prrelid = c.oid))
FROM unnest($1::text[], $2::text[]) AS wanted (nspname, relname)
JOIN pg_namespace n ON n.nspname = wanted.nspname
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.relname
