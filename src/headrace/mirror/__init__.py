"""Keep PostgreSQL's tables as tables of a lake."""
