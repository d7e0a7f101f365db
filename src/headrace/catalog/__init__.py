"""What does the database really have: tables, columns, keys, types, indexes, replica identities?"""

from headrace.catalog.read import list_tables, read_catalog
from headrace.catalog.table import Catalog, Column, ForeignKey, Table, UniqueKey

__all__ = ["Catalog", "Column", "ForeignKey", "Table", "UniqueKey", "list_tables", "read_catalog"]
