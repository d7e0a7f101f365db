-- Whether another session with an application name ($1) executes a statement, and waits for no lock and no client.
SELECT EXISTS (
    SELECT FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = $1 AND pid <> pg_backend_pid()
      AND backend_type IN ('client backend', 'parallel worker')
      AND state = 'active' AND wait_event_type IS DISTINCT FROM 'Lock'
      AND wait_event IS DISTINCT FROM 'ClientWrite'
)
