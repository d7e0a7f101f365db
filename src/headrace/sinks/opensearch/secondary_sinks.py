"""Which sinks does a pipeline write to beside the one that keeps its state, and what is noted of each?"""

from __future__ import annotations

from headrace.sinks.opensearch.client import Client
from headrace.sinks.opensearch.meta import MetaIndex
from headrace.sinks.opensearch.secondary_deferred_keys import SecondaryDeferredKeys
from headrace.sinks.opensearch.state_document import StateDocument, meta_index


def sinks_document(client: Client, slot: str, prefix: str) -> StateDocument:
    """Which secondary sinks a pipeline writes to."""
    return StateDocument(client, meta_index(prefix), f"{slot}.sinks", f"the sinks of slot {slot}")


def forget_sink(client: Client, slot: str, prefix: str, name: str) -> None:
    """Forget what is noted of a secondary sink; its documents stay where they are.

    Its generations first: a start that is killed in between must not take them for intact, without what was
    deferred for them, if the sink comes back.
    """
    own = f"{slot}/{name}"
    MetaIndex(client, own, prefix).delete()
    SecondaryDeferredKeys(client, own, prefix).forget()
