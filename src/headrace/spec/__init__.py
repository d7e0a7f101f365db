"""What documents does the user want? Schema files in, typed trees out, each error with file and line."""

from headrace.spec.load import load_schema
from headrace.spec.normal import denormalised, normalised, spec_hash
from headrace.spec.problems import LocatedError, SchemaErrors
from headrace.spec.tree import IndexSpec

__all__ = [
    "IndexSpec",
    "LocatedError",
    "SchemaErrors",
    "denormalised",
    "load_schema",
    "normalised",
    "spec_hash",
]
