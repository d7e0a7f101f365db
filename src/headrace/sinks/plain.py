"""Generations of a sink without generations: they exist in the pipeline's state only.

Such a sink holds one copy of an index, whichever generation that belongs to; no earlier one is kept.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headrace.sinks.opensearch.generations import FoundIndex, Generation
from headrace.sinks.opensearch.settings import IndexOptions
from headrace.sinks.opensearch.shard_history import Identity
from headrace.sinks.opensearch.state import GenerationState


class PlainGenerations:
    """Stands in for `Generations` where the sink cannot be queried.

    Args:
        known: the generations in the pipeline's state.
    """

    def __init__(self, known: Iterable[GenerationState]) -> None:
        self._known = [
            Generation(state.index, state.generation, state.hash, 0, state.uuid) for state in known
        ]

    def existing(self, name: str) -> list[Generation]:
        """Return the generations in the state, oldest first."""
        return [generation for generation in self._known if generation.name == name]

    def identities(self, indexes: Iterable[str]) -> dict[str, Identity]:  # noqa: ARG002
        """Return nothing: the sink cannot be queried."""
        return {}

    def is_gone(self, index: str) -> bool:  # noqa: ARG002
        """Return False: the sink cannot be queried."""
        return False

    def alias(self, name: str) -> str:
        """Return the name itself: there are no aliases."""
        return name

    def find_by_write_aliases(self, indexes: Sequence[str]) -> dict[str, FoundIndex]:
        """Return every index as present: the sink cannot be queried, so none counts as lost."""
        return {
            generation.index: FoundIndex(generation.uuid, frozenset((generation.target, generation.name)))
            for generation in self._known
            if generation.index in indexes
        }

    def create(self, name: str, spec_hash: str, body: dict[str, Any], schema: str = "") -> Generation:  # noqa: ARG002
        """Create the next generation, in memory."""
        number = len(self.existing(name)) + 1
        identity = uuid.uuid4().hex
        created = Generation(name, f"{name}_{spec_hash}_{identity[:8]}", spec_hash, number, identity, schema)
        self._known.append(created)
        return created

    def finish(self, generation: Generation, options: IndexOptions) -> None:
        """Do nothing."""

    def finish_all(self, backfilled: Sequence[tuple[Generation, IndexOptions]]) -> None:
        """Do nothing."""

    def count(self, index: str) -> int | None:  # noqa: ARG002
        """Return None: the sink cannot be queried."""
        return None

    def keep_settings(self, wanted: Mapping[str, Mapping[str, str]]) -> list[str]:  # noqa: ARG002
        """Return nothing: the sink has no settings."""
        return []

    def publish(self, generation: Generation) -> None:
        """Do nothing."""

    def published(self, name: str) -> Generation | None:  # noqa: ARG002
        """Return None: the sink cannot be queried."""
        return None

    def faults_of_aliases(self, served: Mapping[str, str]) -> dict[str, str]:  # noqa: ARG002
        """Return nothing: the sink has no aliases."""
        return {}

    def drop(self, generation: Generation) -> None:
        """Forget the generation; its documents stay in the sink."""
        self._known = [known for known in self._known if known.index != generation.index]
