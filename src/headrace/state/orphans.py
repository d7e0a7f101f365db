"""Find the generations in a cluster that no state there lists."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.sinks.opensearch import Client, Generation, Generations
from headrace.sinks.opensearch.client import path
from headrace.sinks.opensearch.documents import refresh_if_exists
from headrace.state.key import meta_index

_MAX_HITS = 10_000


def orphans(client: Client, prefix: str) -> list[Generation]:
    """List the generations under `prefix` that no pipeline's state in this cluster lists, sorted by name.

    The state of a secondary sink's deployment is in another cluster: the indexes of such a sink are listed
    too.

    Raises:
        HeadraceError: SINK_UNREACHABLE, SINK_BUSY, AUTHENTICATION.
    """
    # Before the states are read: a generation that is created meanwhile is in a state, or not seen.
    generations = Generations(client, prefix).all()
    known = set(_known_indexes(client, prefix))
    return [generation for generation in generations if generation.index not in known]


def _known_indexes(client: Client, prefix: str) -> Iterable[str]:
    """Iterate over the concrete indexes that the states under `prefix` list."""
    meta = meta_index(prefix)
    if not refresh_if_exists(client, meta):
        return
    search = {"size": _MAX_HITS, "_source": ["generations.generation"], "query": {"match_all": {}}}
    for hit in client.read(path(meta, "_search"), search).json()["hits"]["hits"]:
        for generation in hit["_source"].get("generations", ()):
            yield generation["generation"]
