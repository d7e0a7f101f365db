"""Assembly: read the documents of given keys from the database, as document operations.

`lowering` finds the columns of the schema's tree, `render` and `statement` turn that plan into SQL text, and
`Assembler` runs it. PostgreSQL creates the JSON; it is never parsed.
"""

from headrace.assembly.assembler import Assembler, Refuse
from headrace.assembly.lowering import plan_document
from headrace.assembly.read_strategies import ReadStrategy, strategy_for_blocks
from headrace.assembly.statement import (
    first_statement,
    keys_statement,
    keys_statements,
    range_statement,
)

__all__ = [
    "Assembler",
    "ReadStrategy",
    "Refuse",
    "first_statement",
    "keys_statement",
    "keys_statements",
    "plan_document",
    "range_statement",
    "strategy_for_blocks",
]
