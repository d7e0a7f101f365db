"""The stored state of a pipeline and its JSON form. Pure."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import asdict, astuple, dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, Self

from headrace.model.lsn import KnownCommit, Lsn, format_lsn, parse_lsn
from headrace.sinks.opensearch.generations import write_alias
from headrace.sinks.opensearch.shard_history import Identity

Phase = Literal["creating", "following"]

# The form in which a state is stored; another one is refused.
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Counters:
    """Counts since the pipeline was created; a repeated batch counts again."""

    changes: int = 0
    upserts: int = 0
    deletes: int = 0
    batches: int = 0
    rejected: int = 0

    def __add__(self, other: Counters) -> Counters:
        return Counters(*map(operator.add, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True, order=True)
class Unit:
    """One index in one sink: the smallest thing that has a status of its own and fails alone."""

    sink: str
    index: str

    def __str__(self) -> str:
        return f"{self.sink}: {self.index}" if self.sink else self.index


@dataclass(frozen=True, slots=True)
class GenerationState:
    """One concrete index that the pipeline writes.

    Attributes:
        index: the logical index.
        generation: the concrete one; its `hash` and `uuid` are as in OpenSearch.
        backfilled_at: None during the backfill; then the position at which it was complete.
        as_of: before this position (bytes) a table may have had other columns than the generation's plan
            knows; what was written then was read by the backfill.
        joined: every change after this position (bytes) is written to it; no document has a lower version.
        published: whether the alias serves it. Of an index's complete generations one is served, the others
            are retained.
        pinned: the hash of the schema that a rollback has turned away from: as long as the file has this
            schema, no newer generation is built.
        frozen: why it is not followed any more; it then only waits to be dropped.
        request: the number of the last control request that was carried out on it.
        history: of its shards (`headrace.sinks.opensearch.shard_history`); empty where unknown.
        served_at: when the alias was pointed to it (Unix time); None where that is unknown.
        sink: the name of the secondary sink that holds it; empty for the one that keeps the state.
        schema: what it was created from (`headrace.schema.normal.pack`), so that it is followed once the
            files say something else, whether its sink answers or not; empty where that was not stored.
    """

    index: str
    generation: str
    uuid: str
    hash: str
    backfilled_at: Lsn | None = None
    as_of: Lsn = 0
    joined: Lsn = 0
    published: bool = False
    pinned: str = ""
    frozen: str = ""
    request: str = ""
    history: tuple[str, ...] = ()
    served_at: float | None = None
    sink: str = ""
    schema: str = field(default="", repr=False)

    @property
    def id(self) -> str:
        """The name that no other generation of the pipeline has; two clusters may name an index alike."""
        return generation_id(self.sink, self.generation)

    @property
    def unit(self) -> Unit:
        """The index and the sink that it is of."""
        return Unit(self.sink, self.index)

    @property
    def write_alias(self) -> str:
        """The alias by which its index is written, in a sink that has indexes."""
        return write_alias(self.generation)

    @property
    def building(self) -> bool:
        """Tell whether the backfill is not complete yet."""
        return self.backfilled_at is None

    @property
    def followed(self) -> bool:
        """Tell whether live changes are written to it."""
        return not self.frozen

    @property
    def backfilling(self) -> bool:
        """Tell whether it is being filled: one that failed is not, however much of it is there."""
        return self.building and self.followed


def generation_id(sink: str, generation: str) -> str:
    """Return the id of a concrete index in a sink."""
    return f"{sink}/{generation}" if sink else generation


def served_of(generations: Iterable[GenerationState]) -> GenerationState | None:
    """Return the generation of a unit that readers see; None before the first is complete."""
    return next((generation for generation in generations if generation.published), None)


@dataclass(frozen=True, slots=True)
class PipelineState:
    """Everything that a restart needs and that the slot does not store.

    Attributes:
        system_identifier: of the PostgreSQL cluster, as it prints it.
        timeline: of the PostgreSQL cluster.
        database_oid: of the database.
        slot: the replication slot's name.
        publication: the publication's name.
        phase: of the pipeline.
        consistent_point: where the slot began.
        applied: every change up to this position is durable in the documents; the slot is confirmed no
            further.
        generations: all that are written or retained, in the order of their creation.
        published: the membership of each table in the publication, as the server names it; a different one
            now means that changes in between are not in the log.
        catalog: what the documents depend on in the database's catalog, at the time of the backfill or of the
            last start (`headrace.catalog.fingerprint`).
        counters: since the pipeline was created.
        ahead: where documents are deferred: every change up to this position is durable or deferred, and the
            stream continues there; else None.
        last: the last transaction with a change before `reached`; None where unknown.
        began: where the timeline left the one before it (bytes), 0 for the first; None where unknown.
        deferred_in: identity of the index of deferred keys when `ahead` was noted; None where unknown.
        standby: whether the server is a standby; None where unknown.
    """

    system_identifier: str
    timeline: int
    database_oid: int
    slot: str
    publication: str
    phase: Phase
    consistent_point: Lsn
    applied: Lsn
    generations: tuple[GenerationState, ...] = ()
    published: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    catalog: str = ""
    counters: Counters = Counters()
    ahead: Lsn | None = None
    last: KnownCommit | None = None
    began: Lsn | None = None
    deferred_in: Identity | None = None
    standby: bool | None = None

    @property
    def reached(self) -> Lsn:
        """Return the position before which changes need not be read again."""
        return self.applied if self.ahead is None else self.ahead

    @property
    def deferred_place(self) -> Identity | None:
        """Return the index of deferred keys; None where nothing is deferred, or it is unknown."""
        return None if self.ahead is None else self.deferred_in

    def of(self, index: str) -> tuple[GenerationState, ...]:
        """Return the generations of one logical index, oldest first."""
        return tuple(generation for generation in self.generations if generation.index == index)

    def of_unit(self, unit: Unit) -> tuple[GenerationState, ...]:
        """The generations of a unit, oldest first."""
        return tuple(generation for generation in self.generations if generation.unit == unit)

    def served(self, index: str) -> GenerationState | None:
        """Return the generation that readers see; None before the first is complete."""
        return served_of(self.of(index))

    def in_sink(self, name: str) -> Self:
        """Return the state with the generations of one sink alone; empty for the one that keeps the state."""
        found = tuple(generation for generation in self.generations if generation.sink == name)
        return replace(self, generations=found)

    @property
    def backfilled(self) -> bool:
        """Tell whether readers of every logical index see a complete and followed generation."""
        served = {
            generation.index
            for generation in self.generations
            if generation.published and generation.followed
        }
        return self.phase == "following" and served == {generation.index for generation in self.generations}

    def changed(self, *generations: GenerationState) -> Self:
        """Return the state with these generations replacing those of the same name; new ones come last."""
        changed = {generation.id: generation for generation in generations}
        known = tuple(changed.pop(generation.id, generation) for generation in self.generations)
        return replace(self, generations=(*known, *changed.values()))

    def without(self, *ids: str) -> Self:
        """Return the state without the generations of these ids."""
        remaining = tuple(generation for generation in self.generations if generation.id not in ids)
        return replace(self, generations=remaining)

    def frozen(self, reason: str) -> Self:
        """Return the state with all followed generations frozen."""
        followed = [generation for generation in self.generations if generation.followed]
        return self.changed(*(replace(generation, frozen=reason) for generation in followed))

    def advanced(
        self,
        reached: Lsn,
        counters: Counters,
        *,
        deferred: bool = False,
        deferred_in: Identity | None = None,
        last: KnownCommit | None = None,
        began: Lsn | None = None,
    ) -> Self:
        """Return the state after a batch. Batches repeat after a restart, so an earlier `reached` is ignored.

        Args:
            reached: position up to which changes are durable or deferred.
            counters: added to those of the state.
            deferred: some documents are not durable yet; then `applied` stays.
            deferred_in: the index of deferred keys, if it was unknown before, or known less completely.
            last: the last transaction before `reached`; None where it is the known one.
            began: where the timeline begins, if it was unknown before.
        """
        since = began if self.began is None else self.began
        # A batch that is repeated ends with a transaction before the last one that is known.
        known = self.last if last is None or reached < self.reached else last
        reached, counted = max(self.reached, reached), self.counters + counters
        state = replace(self, counters=counted, last=known, began=since)
        if deferred:
            # `applied` stays, and with it the slot: the log keeps what only the deferred keys tell of.
            return replace(state, ahead=reached, deferred_in=deferred_in or self.deferred_place)
        return replace(state, applied=reached, ahead=None, deferred_in=None)

    def place(self) -> dict[str, Any]:
        """Describe whose log the documents come from, and up to which position."""
        return {
            "system": self.system_identifier,
            "timeline": self.timeline,
            "database": self.database_oid,
            "lsn": format_lsn(self.reached),
            **({} if self.last is None else {"last": self.last.to_json()}),
            **({} if self.began is None else {"timeline_began": format_lsn(self.began)}),
            **({} if self.standby is None else {"standby": self.standby}),
        }

    def to_json(self) -> dict[str, Any]:
        """Convert to JSON for the meta index, with positions as text."""
        return {
            "format": FORMAT,
            "system_identifier": self.system_identifier,
            "timeline": self.timeline,
            "database_oid": self.database_oid,
            "slot": self.slot,
            "publication": self.publication,
            "phase": self.phase,
            "consistent_point": format_lsn(self.consistent_point),
            "applied": format_lsn(self.applied),
            "ahead": None if self.ahead is None else format_lsn(self.ahead),
            "deferred_in": None if self.deferred_place is None else self.deferred_place.to_json(),
            "last": None if self.last is None else self.last.to_json(),
            "timeline_began": None if self.began is None else format_lsn(self.began),
            "standby": self.standby,
            "generations": [_generation_to_json(generation) for generation in self.generations],
            "published": dict(self.published),
            "catalog": self.catalog,
            "counters": asdict(self.counters),
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Read the result of `to_json`.

        Raises:
            KeyError, TypeError, ValueError: something else wrote it, or it has another form.
        """
        if found.get("format") != FORMAT:
            raise ValueError(f"its format is {found.get('format')!r}, and this version reads {FORMAT}")
        return cls(
            system_identifier=found["system_identifier"],
            timeline=found["timeline"],
            database_oid=found["database_oid"],
            slot=found["slot"],
            publication=found["publication"],
            phase=found["phase"],
            consistent_point=parse_lsn(found["consistent_point"]),
            applied=parse_lsn(found["applied"]),
            ahead=parse_lsn(found["ahead"]) if found["ahead"] else None,
            deferred_in=Identity.from_json(found["deferred_in"]) if found["deferred_in"] else None,
            last=KnownCommit.from_json(found["last"]),
            began=parse_lsn(found["timeline_began"]) if found["timeline_began"] else None,
            standby=found["standby"],
            generations=tuple(map(_generation_from_json, found["generations"])),
            published=found["published"],
            catalog=found["catalog"],
            counters=Counters(**found["counters"]),
        )


def _generation_to_json(generation: GenerationState) -> dict[str, Any]:
    return {
        **asdict(generation),
        "backfilled_at": None if generation.backfilled_at is None else format_lsn(generation.backfilled_at),
        "as_of": format_lsn(generation.as_of),
        "joined": format_lsn(generation.joined),
        "history": list(generation.history),
    }


def _generation_from_json(fields: Mapping[str, Any]) -> GenerationState:
    return GenerationState(
        **{
            **fields,
            "backfilled_at": None if fields["backfilled_at"] is None else parse_lsn(fields["backfilled_at"]),
            "as_of": parse_lsn(fields["as_of"]),
            "joined": parse_lsn(fields["joined"]),
            "history": tuple(fields["history"]),
        }
    )
