"""Which bytes does an index hold for a document, and at which version?

`_source` comes back as it was sent, byte for byte. Documents are read by id, as they are now, refreshed or
not. Where a column says on which shard a document lies, each shard is asked for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headrace.errors import HeadraceError, Kind
from headrace.sinks.opensearch.client import Answer, Client, path
from headrace.sinks.opensearch.raw_json import RawJson


@dataclass(frozen=True, slots=True)
class Stored:
    """A document of an index: its external version, and its bytes as they were sent.

    Of one that is there twice, which must not be, the bytes are empty.
    """

    version: int
    source: bytes


@dataclass(frozen=True, slots=True)
class Copy:
    """A document where it lies: `routing` leads to its shard."""

    id: str
    routing: str
    version: int


def copies(client: Client, index: str, ids: Iterable[str], routings: Sequence[str]) -> list[Copy]:
    """Where documents lie, without their bytes.

    Args:
        routings: one to each shard.

    Raises:
        HeadraceError: as `stored`.
    """
    asked = [(one, routing) for one in ids for routing in routings]
    if not asked:
        return []
    docs = [{"_id": one, "routing": routing, "_source": False} for one, routing in asked]
    kept = "docs._id,docs._version,docs.found,docs.error"
    answer = client.read(
        path(index, "_mget", query={"filter_path": kept, **client.primaries()}), {"docs": docs}
    )
    found = []
    for (identity, routing), one in zip(asked, answer.json().get("docs", ()), strict=True):
        if "error" in one:
            raise _unreadable(answer.place, identity, one["error"])
        if one.get("found"):
            found.append(Copy(identity, routing, one["_version"]))
    return found


def stored(client: Client, index: str, ids: Sequence[str], routings: Sequence[str] = ()) -> dict[str, Stored]:
    """What the index holds of `ids`; an id without a document is left out.

    Memory holds all of it: the caller cuts `ids` into portions.

    Args:
        routings: one to each shard, where a document does not lie where its id says.

    Raises:
        HeadraceError: SINK_UNREACHABLE, SINK_BUSY also where a shard does not answer; SINK_REJECTED where the
            index is not there.
    """
    if not ids:
        return {}
    docs = [{"_id": one, "routing": routing} for one in ids for routing in routings]
    answer = client.read(
        path(index, "_mget", query=client.primaries()), {"docs": docs} if routings else {"ids": list(ids)}
    )
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
                twice = found.get(identity)
                found[identity] = one if twice is None else Stored(max(one.version, twice.version), b"")
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
        raise _unreadable(place, known.get("_id"), known["error"])
    identity, version = known.get("_id"), known.get("_version")
    if not isinstance(identity, str):
        raise ValueError("a document without an id")  # noqa: TRY004 - of the answer, not of a caller
    if source is None:
        return identity, None
    if not isinstance(version, int):
        raise ValueError("a document without a version")  # noqa: TRY004
    return identity, Stored(version, source.encode())


def _unreadable(place: str, identity: object, error: object) -> HeadraceError:
    return HeadraceError(
        Kind.SINK_BUSY,
        f"OpenSearch at {place} cannot read the document {identity!r}: {error}",
        "Look at the cluster's health.",
    )
