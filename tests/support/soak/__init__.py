"""Do documents stay right under any schema and any workload? Random cases, each made from one number.

A case is data: tables, schema files and a script of statements (`inventing`, `declaring`, `writing`). It runs
against a real PostgreSQL and the product's own set-up, backfill, capture, resolution and assembly, with the
memory sink in the place of a cluster and without Spark (`following`, `running`), and is judged by
`support.oracle`. `python -m support.soak --help` says how to run many.
"""
