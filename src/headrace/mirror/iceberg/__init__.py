"""Write Iceberg tables in this process, without a JVM.

`lake.py` has the lake and `table.py` one table of it. `schemas.py` numbers their columns, `partitions.py`
computes their partitions, `parquet.py` reads their files, `commits.py` makes snapshots, `removal.py` ends old
ones.
"""
