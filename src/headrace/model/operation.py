"""What is to happen to one document in one index?"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

from headrace.model.lsn import Lsn

Key = tuple[str | None, ...]
"""A key's values in key order, each as PostgreSQL prints it; no value of a usable key is None."""


@dataclass(frozen=True, slots=True)
class DocumentOperation:
    """An upsert, or a delete where `body` is None, of one document.

    Attributes:
        index: the logical index, as the deployment file names it.
        id: the document's id, as the contract forms it.
        version: a position for which the content includes every change up to it (bytes); the sink fences
            older versions.
        body: the JSON document, UTF-8, never parsed by Headrace.
        routing: the sink's routing value, None for its default.
    """

    index: str
    id: str
    version: Lsn
    body: bytes | None
    routing: str | None = None


def key_of_id(id_: str, width: int) -> Key:
    """The key of `width` values that a document's id was formed from (the contract's form)."""
    return (id_,) if width == 1 else tuple(unquote(part) for part in id_.split(":"))
