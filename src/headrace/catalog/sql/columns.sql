-- A domain is followed to its base, also as an array's element. Only base types have bare names: any role may
-- call an enum `date`, but only a superuser can create a base type. A NOT NULL that was added NOT VALID
-- (PostgreSQL 18) does not hold for the existing rows.
WITH RECURSIVE attribute AS (
    SELECT a.attrelid, a.attnum, a.attname, a.atttypid, a.atttypmod, a.attgenerated, a.attcollation,
           a.attnotnull AND NOT EXISTS (
               SELECT FROM pg_constraint k
               WHERE k.conrelid = a.attrelid AND k.contype = 'n' AND NOT k.convalidated
                 AND a.attnum = ANY (k.conkey)
           ) AS not_null
    FROM pg_attribute a
    WHERE a.attrelid = ANY ($1::text[]::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
),
chain (declared, reached, prefix) AS (
    SELECT DISTINCT atttypid, atttypid, '' FROM attribute
    UNION ALL
    SELECT chain.declared,
           CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.typelem END,
           CASE t.typtype WHEN 'd' THEN chain.prefix ELSE chain.prefix || '_' END
    FROM chain JOIN pg_type t ON t.oid = chain.reached
    WHERE t.typtype = 'd' OR (t.typcategory = 'A' AND t.typelem <> 0)
)
SELECT a.attrelid::bigint, a.attname::text, format_type(a.atttypid, a.atttypmod),
       chain.prefix || CASE WHEN base.typtype = 'b' OR base.typnamespace = 'pg_catalog'::regnamespace
                            THEN base.typname::text
                            ELSE (SELECT quote_ident(nspname) FROM pg_namespace WHERE oid = base.typnamespace)
                                 || '.' || quote_ident(base.typname) END,
       n.nspname::text,
       CASE WHEN chain.prefix = '' THEN base.typcategory ELSE 'A' END::text,
       a.not_null, a.attgenerated <> '',
       (SELECT nspname::text FROM pg_namespace WHERE oid = base.typnamespace), declared.typtype = 'd',
       coalesce((SELECT quote_ident(s.nspname) || '.' || quote_ident(k.collname)
                 FROM pg_collation k JOIN pg_namespace s ON s.oid = k.collnamespace
                 WHERE k.oid = a.attcollation AND k.oid <> 'pg_catalog."default"'::regcollation), ''),
       CASE WHEN chain.prefix = '' THEN '' ELSE base.typcategory END::text,
       EXISTS (SELECT FROM pg_collation k WHERE k.oid = a.attcollation AND NOT k.collisdeterministic)
FROM attribute a
JOIN pg_type declared ON declared.oid = a.atttypid
JOIN pg_namespace n ON n.oid = declared.typnamespace
JOIN chain ON chain.declared = a.atttypid
JOIN pg_type base ON base.oid = chain.reached
WHERE base.typtype <> 'd' AND NOT (base.typcategory = 'A' AND base.typelem <> 0)
ORDER BY a.attrelid, a.attnum
