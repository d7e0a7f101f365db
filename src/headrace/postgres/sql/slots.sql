-- All slots, in the order of the fields of SlotFacts. Columns of newer versions are read from the row as JSON,
-- where older versions lack them.
SELECT s.slot_name::text, s.plugin::text, s.slot_type, coalesce(s.database::text, '') AS database,
       s.two_phase, s.temporary, s.active_pid, (s.confirmed_flush_lsn - '0/0')::bigint,
       (s.restart_lsn - '0/0')::bigint, s.wal_status, s.safe_wal_size,
       (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END
        - '0/0')::bigint,
       j.row ->> 'invalidation_reason',
       coalesce((j.row ->> 'failover')::boolean, false),
       coalesce((j.row ->> 'synced')::boolean, false) AND pg_is_in_recovery(),
       extract(epoch FROM clock_timestamp() - (j.row ->> 'inactive_since')::timestamptz)::float8,
       (SELECT extract(epoch FROM r.flush_lag)::float8 FROM pg_stat_replication r WHERE r.pid = s.active_pid),
       coalesce(a.wait_event = 'WaitForStandbyConfirmation', false),
       (SELECT (r.sent_lsn - '0/0')::bigint FROM pg_stat_replication r WHERE r.pid = s.active_pid),
       coalesce(a.state = 'active' AND coalesce(a.wait_event_type, 'IO') = 'IO', false),
       s.catalog_xmin::text::bigint
FROM pg_replication_slots s
CROSS JOIN LATERAL (SELECT to_jsonb(s)) AS j (row)
LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid
