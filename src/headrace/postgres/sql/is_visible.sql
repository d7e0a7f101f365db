-- Whether new snapshots see all that an exported one ($1) sees; on a standby nothing is to be waited for.
SELECT pg_is_in_recovery() OR pg_snapshot_xmax(now) >= pg_snapshot_xmax(exported)
       AND NOT EXISTS (
           SELECT FROM pg_snapshot_xip(now) AS running (id) WHERE pg_visible_in_snapshot(running.id, exported)
       )
FROM (SELECT pg_current_snapshot() AS now, $1::pg_snapshot AS exported) AS snapshots
