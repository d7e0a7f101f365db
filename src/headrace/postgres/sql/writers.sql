-- The transactions that write to tables ($1 schemas, $2 names).
-- ROW EXCLUSIVE is what writers of rows hold; the stronger modes let a transaction write, too.
SELECT l.virtualtransaction, coalesce('pid ' || l.pid, 'a prepared transaction')
FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN unnest($1::text[], $2::text[]) AS wanted (schema, name)
     ON wanted.schema = n.nspname AND wanted.name = c.relname
WHERE l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
