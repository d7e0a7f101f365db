"""Which indexes did Headrace make under a prefix that no deployment knows any more?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.sinks.opensearch.client import Client, path
from headrace.sinks.opensearch.generations import Generations
from headrace.sinks.opensearch.state_document import meta_index

_MOST = 10_000


@dataclass(frozen=True, slots=True)
class Orphan:
    """A concrete index that no state in this cluster names.

    Attributes:
        name: the logical index that it was made for.
        aliases: the names under which readers find it; the alias for writers is left out.
    """

    name: str
    index: str
    hash: str
    aliases: tuple[str, ...]


def orphans(client: Client, prefix: str) -> list[Orphan]:
    """The indexes that Headrace made under `prefix` and that no state in this cluster names, by name.

    The state of a secondary sink's deployment is in another cluster: what such a sink holds here is listed.

    Raises:
        HeadraceError: SINK_UNREACHABLE, SINK_BUSY, AUTHENTICATION.
    """
    made = Generations(client, prefix).made()  # first: what is made meanwhile is named, or not seen
    known = set(_named(client, prefix))
    return [
        Orphan(generation.name, generation.index, generation.hash, aliases)
        for generation, aliases in made
        if generation.index not in known
    ]


def _named(client: Client, prefix: str) -> Iterable[str]:
    """The concrete indexes that the states under `prefix` name."""
    meta = meta_index(prefix)
    if not client.call("POST", path(meta, "_refresh"), allow=(404,)).ok:
        return
    wanted = {"size": _MOST, "_source": ["generations.generation"], "query": {"match_all": {}}}
    for hit in client.read(path(meta, "_search"), wanted).json()["hits"]["hits"]:
        for generation in hit["_source"].get("generations", ()):
            yield generation["generation"]
