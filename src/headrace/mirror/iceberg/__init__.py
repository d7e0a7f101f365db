"""Write Iceberg tables in this process, without a JVM.

`catalog.py` finds tables by their paths, `schemas.py` numbers their columns, `files.py` reads and writes their
files, `commits.py` makes snapshots, `removal.py` ends old ones, `tables.py` brings all of it together.
"""
