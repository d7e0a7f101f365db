"""What are the documents of these keys, right now? Document keys in, document operations out.

`lowering` finds the columns of the user's tree, `render` and `statement` turn that plan into SQL text, and
`Assembler` runs it. PostgreSQL makes the JSON; nobody parses it.
"""

from headrace.assembly.assembler import Assembler, Refuse
from headrace.assembly.forms import ReadStrategy, form_for_blocks
from headrace.assembly.lowering import plan_document
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
    "form_for_blocks",
    "keys_statement",
    "keys_statements",
    "plan_document",
    "range_statement",
]
