SELECT oid::bigint, puballtables,
       concat_ws(', ', CASE WHEN pubinsert THEN 'insert' END, CASE WHEN pubupdate THEN 'update' END,
                 CASE WHEN pubdelete THEN 'delete' END, CASE WHEN pubtruncate THEN 'truncate' END),
       pubviaroot, xmin::text::bigint
FROM pg_publication WHERE pubname = $1
