"""Read and check the database's tables: columns, keys, types, indexes, replica identities."""

from headrace.catalog.binding import BindingFinding, bind, complete, findings
from headrace.catalog.read import list_tables, read_catalog
from headrace.catalog.suggestion import suggest_name, suggest_schema
from headrace.catalog.table import Catalog, Column, ForeignKey, Table, UniqueKey

__all__ = [
    "BindingFinding",
    "Catalog",
    "Column",
    "ForeignKey",
    "Table",
    "UniqueKey",
    "bind",
    "complete",
    "findings",
    "list_tables",
    "read_catalog",
    "suggest_name",
    "suggest_schema",
]
