"""Mask columns whose values the lake must not have, before anything of the mirror sees them. Pure.

A masked column is read as the text that PostgreSQL prints, from tables as from the log, so that both give the
same mask.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from headrace.config.mirror import Mask
from headrace.config.secret import Secret
from headrace.mirror.columns import Rows, replaced

_REDACTED = "***"
_KNOWN = b"headrace"
"""A text whose hash tells one salt from another."""


@dataclass(frozen=True, slots=True)
class Masks:
    """What stands in the place of some columns' values; NULL stays NULL.

    Attributes:
        kinds: the mask of each masked column.
        salt: is hashed before each value of a column with `sha256`.
    """

    kinds: Mapping[str, Mask] = field(default_factory=dict)
    salt: Secret | None = None

    def described(self, column: str) -> bytes | None:
        """Return what tells a column's mask from others, the salt included; None: it has none."""
        kind = self.kinds.get(column)
        return f"sha256:{self._hash(_KNOWN)[:16]}".encode() if kind == "sha256" else kind and kind.encode()

    def reads_text(self, column: str) -> bool:
        """Tell whether a column is read as text, and is one in the lake."""
        return self.kinds.get(column) in {"sha256", "redact"}

    def apply(self, rows: Rows) -> Rows:
        """Return rows with the masks in the place of the values."""
        present = {name: kind for name, kind in self.kinds.items() if name in rows.schema.names}
        return replaced(rows, {name: self._masked(kind, rows.column(name)) for name, kind in present.items()})

    def _masked(self, kind: Mask, values: pa.Array | pa.ChunkedArray) -> pa.Array:
        match kind:
            case "null":
                return pa.nulls(len(values), values.type)
            case "redact":
                return pc.if_else(pc.is_null(values), pa.scalar(None, pa.string()), _REDACTED)
            case "sha256":
                # NULL stays NULL: its hash would tell nothing, and break `IS NULL`.
                hashes = (None if text is None else self._hash(text.encode()) for text in values.to_pylist())
                return pa.array(hashes, pa.string(), size=len(values))

    def _hash(self, value: bytes) -> str:
        assert self.salt is not None
        return hashlib.sha256(self.salt.reveal().encode() + value).hexdigest()
