"""Run PostgreSQL and OpenSearch on this machine without an installation, for the demo and for tests."""
