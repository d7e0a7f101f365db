"""Errors in schema files, with their place; all mistakes of a file are reported at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.errors import HeadraceError, Kind
from headrace.schema.tree import Place


class LocatedError(HeadraceError):
    """An error at a place in a file.

    Its text is one line: the place, the problem, the line itself, the remedy. `excerpt` is for terminals.
    """

    def __init__(self, kind: Kind, place: Place, problem: str, remedy: str = "") -> None:
        line = place.text.strip()
        super().__init__(kind, f"{place}: {problem}" + (f", in `{line}`" if line else ""), remedy)
        self.place = place
        self.problem = problem

    @property
    def excerpt(self) -> str:
        """The line with a caret under the column."""
        return f"{self.place.text}\n{' ' * (self.place.column - 1)}^"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.kind, self.place, self.problem, self.remedy)


class SchemaErrors(HeadraceError):  # noqa: N818 -- it holds several
    """All errors of one schema file; `errors` are in the order of the file.

    Its text is one line for each error.
    """

    def __init__(self, errors: Sequence[HeadraceError]) -> None:
        self.errors = tuple(errors)
        first = self.errors[0]
        more = f" (and {len(self.errors) - 1} more)" if len(self.errors) > 1 else ""
        super().__init__(Kind.SCHEMA, first.cause + more, first.remedy)

    def __str__(self) -> str:
        return "\n".join(str(error) for error in self.errors)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.errors,)
