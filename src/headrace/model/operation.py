"""An operation on one document of one index."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

from headrace.model.lsn import Lsn

Key = tuple[str | None, ...]
"""A key's values in key order, as PostgreSQL prints them; a usable key holds no None."""


@dataclass(frozen=True, slots=True)
class DocumentOperation:
    """An upsert, or a delete where `body` is None, of one document.

    Attributes:
        index: the logical index, as the deployment file names it.
        id: the document's id, formed from its key.
        version: a position up to which the content includes every change (bytes); the sink rejects older
            versions.
        body: the JSON document in UTF-8; None for a delete.
        routing: the sink's routing value; None for its default.
    """

    index: str
    id: str
    version: Lsn
    body: bytes | None
    routing: str | None = None


def key_of_id(id_: str, width: int) -> Key:
    """Return the key of `width` values that a document's id was formed from."""
    return (id_,) if width == 1 else tuple(unquote(part) for part in id_.split(":"))
