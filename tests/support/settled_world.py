"""A world in which everything is as the state says, for tests of what is decided."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.model.lsn import Lsn
from headrace.pipeline.controller.world import CatalogSeen, ServerSeen, SinkSeen, SlotSeen, World
from headrace.sinks.opensearch.shard_history import Identity
from headrace.state import GenerationState


def settled_world(generations: Sequence[GenerationState], **seen: object) -> World:
    """The world of the index users, as these generations say, but for what is `seen`."""
    found = {
        generation.generation: Identity(generation.uuid, generation.history) for generation in generations
    }
    served = {generation.index: generation.generation for generation in generations if generation.published}
    return World(
        **{
            "now": 100.0,
            "state": None,
            "server": ServerSeen("7", 1, 5, Lsn(100)),
            "slot": SlotSeen("s", Lsn(50)),
            "catalog": CatalogSeen("text", Lsn(40)),
            "reads": {generation.id: frozenset({"users"}) for generation in generations},
            "sinks": {"": SinkSeen(found, dict.fromkeys(found, "users"), served)},
            **seen,
        }  # type: ignore[arg-type]
    )
