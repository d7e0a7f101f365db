"""How is a table called?"""

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
        """For people: `public` is left out, a part that needs quotes gets them."""
        parts = (self.name,) if self.schema == "public" else (self.schema, self.name)
        return ".".join(_shown(part) for part in parts)


def _shown(part: str) -> str:
    return part if _PLAIN.fullmatch(part) else '"' + part.replace('"', '""') + '"'
