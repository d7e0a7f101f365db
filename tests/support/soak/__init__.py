"""Check that documents are right under any schema and workload, by random cases, each made from one number.

A case is data: tables, schema files and a script of statements (`random_database`, `random_schemas`,
`random_workload`). It runs against a real PostgreSQL and the product's own set-up, backfill, capture,
resolution and assembly, with the memory sink in the place of a cluster and without Spark (`follower`,
`case_run`), and is judged by `support.oracle`. `python -m support.soak --help` says how to run many.
"""
