"""Find the generations in a cluster that no state there lists."""

from __future__ import annotations

from headrace.sinks.opensearch import Client, Generation, Generations
from headrace.sinks.opensearch.documents import documents, refresh_if_exists
from headrace.state.key import meta_index


def orphans(client: Client, prefix: str) -> list[Generation]:
    """List the generations under `prefix` that no pipeline's state in this cluster lists, sorted by name.

    The state of a secondary sink's deployment is in another cluster: the indexes of such a sink are listed
    too.

    Raises:
        HeadraceError: SINK_UNREACHABLE, SINK_BUSY, AUTHENTICATION.
    """
    # Before the states are read: a generation that is created meanwhile is in a state, or not seen.
    generations = Generations(client, prefix).all()
    meta = meta_index(prefix)
    states = (state for _, state in documents(client, meta)) if refresh_if_exists(client, meta) else ()
    known = {listed["generation"] for state in states for listed in state.get("generations", ())}
    return [generation for generation in generations if generation.index not in known]
