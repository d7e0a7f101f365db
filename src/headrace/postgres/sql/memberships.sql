-- The server's OID of each table's membership in a publication ($1): by itself, with its schema, and with all
-- tables if $2. It differs if the table ever left the publication. A table may be published in several ways.
SELECT n.nspname::text, c.relname::text, max(member.oid)
FROM pg_publication p
CROSS JOIN LATERAL (
    SELECT r.prrelid, r.oid::bigint FROM pg_publication_rel r WHERE r.prpubid = p.oid
    UNION ALL
    SELECT c.oid, p.oid::bigint FROM pg_class c WHERE p.puballtables AND $2::boolean AND c.relkind IN ('r', 'p')
    UNION ALL
    -- FOR TABLES IN SCHEMA: pg_publication_namespace, seen through pg_depend, which servers before 15 have too.
    SELECT c.oid, d.objid::bigint
    FROM pg_depend d
    JOIN pg_depend s ON (s.classid, s.objid) = (d.classid, d.objid) AND s.refclassid = 'pg_namespace'::regclass
    JOIN pg_class c ON c.relnamespace = s.refobjid AND c.relkind IN ('r', 'p')
    WHERE d.classid = to_regclass('pg_catalog.pg_publication_namespace')
      AND d.refclassid = 'pg_publication'::regclass AND d.refobjid = p.oid
) AS member (relation, oid)
JOIN pg_class c ON c.oid = member.relation
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE p.pubname = $1
GROUP BY 1, 2
