"""Write Iceberg tables in this process, without a JVM.

`lake.py` has the lake and `table.py` one table of it. `catalog.py` finds tables by their paths, `schemas.py`
numbers their columns, `files.py` and `parquet.py` read and write their files, `commits.py` makes snapshots,
`removal.py` ends old ones.
"""
