SELECT i.indrelid::bigint, c.relname::text, m.amname::text,
       i.indisunique, i.indisprimary, i.indimmediate, i.indisreplident, i.indpred IS NOT NULL,
       ARRAY(SELECT a.attname::text
             FROM unnest(i.indkey::smallint[]) WITH ORDINALITY AS k (attnum, position)
             LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum AND k.attnum <> 0
             WHERE k.position <= i.indnkeyatts ORDER BY k.position)
FROM pg_index i
JOIN pg_class c ON c.oid = i.indexrelid
JOIN pg_am m ON m.oid = c.relam
WHERE i.indrelid = ANY ($1::text[]::oid[]) AND i.indisvalid AND i.indislive
ORDER BY i.indrelid, i.indisprimary DESC, c.relname
