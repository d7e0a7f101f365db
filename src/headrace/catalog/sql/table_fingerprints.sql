-- to_jsonb: PostgreSQL 14 has neither column lists nor row filters.
WITH RECURSIVE named AS (
    SELECT c.oid, c.relkind, n.nspname, c.relname, c.relowner, c.relhassubclass, c.relnatts,
           t.xmin AS named
    FROM unnest($1::text[], $2::text[]) AS wanted (nspname, relname)
    JOIN pg_namespace n ON n.nspname = wanted.nspname
    JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.relname
    JOIN pg_type t ON t.oid = c.reltype
    WHERE c.relkind IN ('r', 'p')
),
attribute AS (
    SELECT a.attrelid, a.attname, a.attnum, a.atttypid, a.atttypmod, a.attgenerated, a.attcollation, a.xmin
    FROM unnest($3::text[], $4::text[], $5::text[]) AS used (nspname, relname, attname)
    JOIN named r ON r.nspname = used.nspname AND r.relname = used.relname
    JOIN pg_attribute a ON a.attrelid = r.oid AND a.attname = used.attname
    WHERE a.attnum > 0 AND NOT a.attisdropped
),
inside (declared, reached) AS (
    SELECT DISTINCT atttypid, atttypid FROM attribute
    UNION
    SELECT inside.declared, step.oid
    FROM inside JOIN pg_type t ON t.oid = inside.reached
    CROSS JOIN LATERAL (
        SELECT t.typbasetype WHERE t.typtype = 'd'
        UNION ALL SELECT t.typelem WHERE t.typcategory = 'A' AND t.typelem <> 0
        UNION ALL SELECT g.rngsubtype FROM pg_range g WHERE t.oid IN (g.rngtypid, g.rngmultitypid)
        UNION ALL SELECT a.atttypid FROM pg_attribute a
                  WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
    ) AS step (oid)
),
tree AS (
    SELECT oid AS root, oid, ARRAY[]::bigint[] AS edges FROM named
    UNION
    SELECT tree.root, i.inhrelid, tree.edges || ARRAY[[i.inhrelid::bigint, i.xmin::text::bigint]]
    FROM tree JOIN pg_class c ON c.oid = tree.oid AND c.relkind = 'p'
    JOIN pg_inherits i ON i.inhparent = tree.oid AND NOT i.inhdetachpending
)
SELECT r.nspname::text, r.relname::text, json_build_object(
    'oid', r.oid::bigint,
    'columns', (SELECT coalesce(json_agg(json_build_array(
            a.attname, a.attnum, a.atttypid::bigint, a.atttypmod, format_type(a.atttypid, a.atttypmod),
            (SELECT coalesce(string_agg(made.of, '; ' ORDER BY made.of), '') FROM (
                SELECT format_type(e.enumtypid, NULL) || ': '
                       || string_agg(quote_literal(e.enumlabel), ', ' ORDER BY e.enumsortorder)
                FROM inside JOIN pg_enum e ON e.enumtypid = inside.reached
                WHERE inside.declared = a.atttypid GROUP BY e.enumtypid
                UNION ALL
                SELECT format_type(t.oid, NULL) || ': '
                       || string_agg(quote_ident(b.attname) || ' ' || format_type(b.atttypid, b.atttypmod),
                                     ', ' ORDER BY b.attnum)
                FROM inside JOIN pg_type t ON t.oid = inside.reached AND t.typtype = 'c'
                JOIN pg_attribute b ON b.attrelid = t.typrelid AND b.attnum > 0 AND NOT b.attisdropped
                WHERE inside.declared = a.atttypid GROUP BY t.oid
                UNION ALL
                SELECT 'generated' || CASE WHEN $7 THEN ': ' || pg_get_expr(d.adbin, d.adrelid) ELSE '' END
                FROM pg_attrdef d
                WHERE a.attgenerated <> '' AND d.adrelid = a.attrelid AND d.adnum = a.attnum
                UNION ALL
                SELECT 'collation: ' || quote_ident(k.collname)
                FROM pg_collation k
                WHERE k.oid = a.attcollation AND k.oid <> 'pg_catalog."default"'::regcollation) AS made (of)),
            a.xmin::text::bigint,
            (SELECT coalesce(json_agg(made.by), '[]') FROM (
                SELECT e.oid || ' ' || e.xmin
                FROM inside JOIN pg_enum e ON e.enumtypid = inside.reached WHERE inside.declared = a.atttypid
                UNION ALL
                SELECT b.attrelid || '.' || b.attnum || ' ' || b.xmin
                FROM inside JOIN pg_type t ON t.oid = inside.reached AND t.typtype = 'c'
                JOIN pg_attribute b ON b.attrelid = t.typrelid AND b.attnum > 0 AND NOT b.attisdropped
                WHERE inside.declared = a.atttypid
                UNION ALL
                SELECT 'generated ' || d.oid || ' ' || d.xmin
                FROM pg_attrdef d
                WHERE a.attgenerated <> '' AND d.adrelid = a.attrelid AND d.adnum = a.attnum) AS made (by)))
            ORDER BY a.attnum), '[]')
        FROM attribute a WHERE a.attrelid = r.oid),
    'names', (SELECT json_object_agg(b.attnum, b.attname) FROM pg_attribute b
              WHERE b.attrelid = r.oid AND b.attnum > 0 AND NOT b.attisdropped),
    'parts', (SELECT coalesce(json_agg(json_build_array(
            c.oid::bigint, n.nspname, c.relname, c.relreplident,
            CASE WHEN c.relreplident <> 'f' THEN
                (SELECT coalesce(json_agg(b.attname), '[]')
                 FROM pg_index x JOIN pg_attribute b ON b.attrelid = c.oid
                      AND b.attnum = ANY ((x.indkey::int2[])[0:x.indnkeyatts - 1])
                 WHERE x.indrelid = c.oid AND x.indisvalid AND x.indimmediate
                   AND CASE c.relreplident WHEN 'd' THEN x.indisprimary WHEN 'i' THEN x.indisreplident END)
            END,
            c.relfilenode::bigint, CASE c.relkind WHEN 'f' THEN 'f' ELSE c.relpersistence END,
            c.reltoastrelid::bigint,
            (SELECT coalesce(json_agg(l.oid::bigint), '[]')
             FROM pg_publication_rel l WHERE l.prrelid = c.oid),
            t.edges,
            (SELECT coalesce(max(d.xmin::text::bigint), 0) FROM pg_depend d
             WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.objsubid = 0
               AND d.refclassid = 'pg_namespace'::regclass)) ORDER BY c.oid), '[]')
        FROM tree t JOIN pg_class c ON c.oid = t.oid AND c.relkind <> 'p'
        JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE t.root = r.oid),
    'members', (SELECT coalesce(json_agg(json_build_array(member, listed, filtered, joined)), '[]') FROM (
        SELECT m.oid::bigint,
               (SELECT json_agg(b.attname) FROM pg_attribute b
                WHERE b.attrelid = m.prrelid AND to_jsonb(m) -> 'prattrs' @> to_jsonb(b.attnum)),
               to_jsonb(m) ->> 'prqual' IS NOT NULL, m.xmin::text::bigint
        FROM pg_publication_rel m JOIN pg_publication p ON p.oid = m.prpubid
        WHERE p.pubname = $6 AND (m.prrelid IN (SELECT t.oid FROM tree t WHERE t.root = r.oid)
                                  OR m.prrelid IN (SELECT relid FROM pg_partition_ancestors(r.oid)))
        /*schemas*/
        ) AS found (member, listed, filtered, joined)),
    'named', r.named::text::bigint,
    'owner', r.relowner::bigint,
    'inherited', r.relkind = 'r' AND r.relhassubclass,
    'highest', r.relnatts::int,
    'in_order', NOT EXISTS (
        SELECT FROM tree t WHERE t.root = r.oid AND t.oid <> r.oid
            AND (SELECT array_agg(b.attname ORDER BY b.attnum) FROM pg_attribute b
                 WHERE b.attrelid = t.oid AND b.attnum > 0 AND NOT b.attisdropped)
                IS DISTINCT FROM
                (SELECT array_agg(b.attname ORDER BY b.attnum) FROM pg_attribute b
                 WHERE b.attrelid = r.oid AND b.attnum > 0 AND NOT b.attisdropped))
)
FROM named r
