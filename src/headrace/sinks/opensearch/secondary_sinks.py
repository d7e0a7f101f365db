"""The stored list of a pipeline's secondary sinks."""

from __future__ import annotations

from headrace.sinks.opensearch.client import Client
from headrace.sinks.opensearch.meta import MetaIndex
from headrace.sinks.opensearch.secondary_deferred_keys import SecondaryDeferredKeys
from headrace.sinks.opensearch.system_index import StateDocument, meta_index


def sinks_document(client: Client, slot: str, prefix: str) -> StateDocument:
    """Return the document that lists a pipeline's secondary sinks."""
    return StateDocument(client, meta_index(prefix), f"{slot}.sinks", f"the sinks of slot {slot}")


def forget_sink(client: Client, slot: str, prefix: str, name: str) -> None:
    """Delete what is stored about a secondary sink; its documents stay in the sink.

    Its generations are deleted first. Otherwise, after a kill in between, a later start would take them for
    complete although their deferred keys are gone.
    """
    own = f"{slot}/{name}"
    MetaIndex(client, own, prefix).delete()
    SecondaryDeferredKeys(client, own, prefix).forget()
