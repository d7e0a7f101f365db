-- The files with the rows of tables ($1 schemas, $2 names); $3: those of inheritance children count too. Of each
-- the filenode now and as the snapshot sees it: to the snapshot a table that was rewritten since looks empty.
WITH RECURSIVE family (of_schema, of_name, oid) AS (
    SELECT wanted.nspname, wanted.relname, c.oid
    FROM unnest($1::text[], $2::text[]) AS wanted (nspname, relname)
    JOIN pg_namespace n ON n.nspname = wanted.nspname
    JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.relname
    UNION
    SELECT family.of_schema, family.of_name, i.inhrelid
    FROM family JOIN pg_inherits i ON i.inhparent = family.oid
    JOIN pg_class part ON part.oid = i.inhrelid AND (part.relispartition OR $3)
)
SELECT family.of_schema, family.of_name, n.nspname::text, c.relname::text,
       c.relkind IN ('r', 'm') AND coalesce(m.amname = 'heap', false),
       has_table_privilege(c.oid, 'SELECT') OR has_any_column_privilege(c.oid, 'SELECT'),
       CASE WHEN c.relkind IN ('r', 'm') THEN pg_relation_size(c.oid) ELSE 0 END,
       current_setting('block_size')::int,
       coalesce(pg_relation_filenode(c.oid), 0)::bigint,
       c.relfilenode::bigint
FROM family JOIN pg_class c ON c.oid = family.oid
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_am m ON m.oid = c.relam
WHERE c.relkind <> 'p'
ORDER BY 1, 2, 3, 4
