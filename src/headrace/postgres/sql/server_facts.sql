SELECT current_setting('server_version_num')::int,
       current_setting('server_version'),
       current_setting('wal_level'),
       pg_is_in_recovery(),
       (SELECT oid::bigint FROM pg_database WHERE datname = current_database()),
       current_database()::text,
       (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END
        - '0/0')::bigint,
       current_setting('max_replication_slots')::int,
       (SELECT count(*) FROM pg_replication_slots)::int,
       (SELECT nullif(setting::bigint, -1) * 1024 * 1024 FROM pg_settings
        WHERE name = 'max_slot_wal_keep_size'),
       current_setting('server_encoding'),
       coalesce(current_setting('synchronous_standby_names', true), '')
