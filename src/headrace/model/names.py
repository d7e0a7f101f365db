"""The qualified name of a table."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """A table's schema and name, both as the catalog holds them (case kept, never quoted)."""

    schema: str
    name: str

    def __str__(self) -> str:
        """Return the name for people: without `public`, and with quotes where a part needs them."""
        parts = (self.name,) if self.schema == "public" else (self.schema, self.name)
        return ".".join(_quote_if_needed(part) for part in parts)


def _quote_if_needed(part: str) -> str:
    return part if _PLAIN.fullmatch(part) else '"' + part.replace('"', '""') + '"'
