"""Show a run to a person: one read-only page at `/`, kept up to date by server-sent events."""
