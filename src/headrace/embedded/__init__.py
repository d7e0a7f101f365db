"""PostgreSQL, OpenSearch and their files on this machine, without an installation."""
