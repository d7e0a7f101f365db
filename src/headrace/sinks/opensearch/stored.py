"""Which bytes does an index hold for a document, and at which version?

`_source` comes back as it was sent, byte for byte. Documents are read by id, as they are now, refreshed or
not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.errors import HeadraceError, Kind
from headrace.sinks.opensearch.client import Answer, Client, path
from headrace.sinks.opensearch.raw_json import RawJson


@dataclass(frozen=True, slots=True)
class Stored:
    """A document of an index: its external version, and its bytes as they were sent."""

    version: int
    source: bytes


def stored(client: Client, index: str, ids: Sequence[str]) -> dict[str, Stored]:
    """What the index holds of `ids`; an id without a document is left out.

    Memory holds all of it: the caller cuts `ids` into portions.

    Raises:
        HeadraceError: SINK_UNREACHABLE, SINK_BUSY also where a shard does not answer; SINK_REJECTED where the
            index is not there.
    """
    if not ids:
        return {}
    answer = client.read(path(index, "_mget"), {"ids": list(ids)})
    try:
        return _documents(answer)
    except ValueError as error:
        raise HeadraceError(
            Kind.SINK_UNREACHABLE, f"the answer of OpenSearch at {answer.place} cannot be read: {error}"
        ) from error


def _documents(answer: Answer) -> dict[str, Stored]:
    found: dict[str, Stored] = {}
    text = RawJson(answer.data.decode())
    for key in text.fields():
        if key != "docs":
            text.raw()
            continue
        for _ in text.items():
            identity, one = _document(text, answer.place)
            if one is not None:
                found[identity] = one
    return found


def _document(text: RawJson, place: str) -> tuple[str, Stored | None]:
    known: dict[str, object] = {}
    source: str | None = None
    for key in text.fields():
        if key == "_source":
            source = text.raw()
        elif key in ("_id", "_version", "error"):
            known[key] = text.value()
        else:
            text.raw()
    if "error" in known:
        raise HeadraceError(
            Kind.SINK_BUSY,
            f"OpenSearch at {place} cannot read the document {known.get('_id')!r}: {known['error']}",
            "Look at the cluster's health.",
        )
    identity, version = known.get("_id"), known.get("_version")
    if not isinstance(identity, str):
        raise ValueError("a document without an id")  # noqa: TRY004 - of the answer, not of a caller
    if source is None:
        return identity, None
    if not isinstance(version, int):
        raise ValueError("a document without a version")  # noqa: TRY004
    return identity, Stored(version, source.encode())
