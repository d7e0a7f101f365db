"""Read schema files into typed trees; each error names file and line."""

from headrace.schema.load import load_schema
from headrace.schema.normal import denormalised, normalised, spec_hash
from headrace.schema.tree import IndexSpec

__all__ = [
    "IndexSpec",
    "denormalised",
    "load_schema",
    "normalised",
    "spec_hash",
]
