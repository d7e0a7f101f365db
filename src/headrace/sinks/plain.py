"""What are generations to a sink that is no search cluster? Numbers in the state, nothing in the sink.

It holds one copy of an index, whichever generation that is of; so none is kept beside another.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headrace.sinks.opensearch.generations import Found, Generation
from headrace.sinks.opensearch.options import IndexOptions
from headrace.sinks.opensearch.shard_history import Identity
from headrace.sinks.opensearch.state import GenerationState


class PlainGenerations:
    """As `Generations`, of a sink that cannot be asked.

    Args:
        known: what the state says.
    """

    def __init__(self, known: Iterable[GenerationState]) -> None:
        self._known = [Generation(one.index, one.generation, one.hash, 0, one.uuid) for one in known]

    def existing(self, name: str) -> list[Generation]:
        """Those that the state knows, oldest first."""
        return [one for one in self._known if one.name == name]

    def identities(self, indexes: Iterable[str]) -> dict[str, Identity]:  # noqa: ARG002
        """The sink does not know."""
        return {}

    def is_gone(self, index: str) -> bool:  # noqa: ARG002
        """The sink does not know."""
        return False

    def alias(self, name: str) -> str:
        """There is none."""
        return name

    def look(self, indexes: Sequence[str]) -> dict[str, Found]:
        """The sink cannot be asked: nothing is lost as far as anyone knows."""
        return {
            one.index: Found(one.uuid, frozenset((one.target, one.name)))
            for one in self._known
            if one.index in indexes
        }

    def create(self, name: str, spec_hash: str, body: dict[str, Any], schema: str = "") -> Generation:  # noqa: ARG002
        """The next one."""
        number = len(self.existing(name)) + 1
        identity = uuid.uuid4().hex
        made = Generation(name, f"{name}_{spec_hash}_{identity[:8]}", spec_hash, number, identity, schema)
        self._known.append(made)
        return made

    def finish(self, generation: Generation, options: IndexOptions) -> None:
        """Nothing is to be done."""

    def finish_all(self, seeded: Sequence[tuple[Generation, IndexOptions]]) -> None:
        """Nothing is to be done."""

    def count(self, index: str) -> int | None:  # noqa: ARG002
        """The sink does not know."""
        return None

    def keep_settings(self, wanted: Mapping[str, Mapping[str, str]]) -> list[str]:  # noqa: ARG002
        """It has none."""
        return []

    def publish(self, generation: Generation) -> None:
        """Nothing is to be done."""

    def published(self, name: str) -> Generation | None:  # noqa: ARG002
        """The sink does not know."""
        return None

    def faults_of_aliases(self, served: Mapping[str, str]) -> dict[str, str]:  # noqa: ARG002
        """It has no aliases."""
        return {}

    def drop(self, generation: Generation) -> None:
        """It is forgotten; what the sink holds of it stays."""
        self._known = [one for one in self._known if one.index != generation.index]
