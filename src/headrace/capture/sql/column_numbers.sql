-- The columns that a transaction ($2) saw of a relation ($1: oid), in the order of their numbers: number, name,
-- and the number of the column of that name in the table ($3: schema, $4: name; $6 where it has none).
-- $5: the names that the log has; generated columns are sent only if they are among them.
-- Without a column list only: such columns cannot be dropped while the publication ($7) has the table.
SELECT a.attnum, CASE WHEN NOT a.attisdropped THEN a.attname::text END, coalesce(r.attnum, $6::int)
FROM pg_attribute a
LEFT JOIN pg_namespace n ON n.nspname = $3
LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = $4
LEFT JOIN pg_attribute r ON r.attrelid = c.oid AND r.attname = a.attname AND NOT r.attisdropped
WHERE a.attrelid = $1::text::oid AND a.attnum > 0
  AND (NOT a.attisdropped OR age(a.xmin) <= age($2::text::xid))
  AND (a.attgenerated = '' OR a.attname = ANY ($5::text[]))
  AND NOT EXISTS (
      SELECT FROM pg_publication_rel m JOIN pg_publication p ON p.oid = m.prpubid
      WHERE p.pubname = $7 AND to_jsonb(m) ->> 'prattrs' IS NOT NULL
        AND (m.prrelid = a.attrelid OR m.prrelid IN (SELECT relid FROM pg_partition_ancestors(a.attrelid))))
ORDER BY a.attnum
