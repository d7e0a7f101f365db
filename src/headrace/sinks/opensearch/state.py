"""What does a pipeline remember about itself? Pure values and their JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, Self

from headrace.model import KnownCommit, Lsn, format_lsn, parse_lsn
from headrace.sinks.opensearch.shard_history import Identity

Phase = Literal["creating", "seeding", "following"]


@dataclass(frozen=True, slots=True)
class Counters:
    """Since the pipeline was made; a repeated batch counts again."""

    changes: int = 0
    upserts: int = 0
    deletes: int = 0
    batches: int = 0
    rejected: int = 0

    def __add__(self, other: Counters) -> Counters:
        return Counters(
            self.changes + other.changes,
            self.upserts + other.upserts,
            self.deletes + other.deletes,
            self.batches + other.batches,
            self.rejected + other.rejected,
        )


@dataclass(frozen=True, slots=True)
class GenerationState:
    """One concrete index that the pipeline writes.

    Attributes:
        index: the logical index.
        generation: the concrete one; its `hash` and `uuid` are as OpenSearch has them.
        seeded_at: None while it is built; then the position at which it was complete.
        as_of: before this place in the log a table may have had another shape than the generation's plan
            knows; what was written then was read when it was seeded (bytes).
        joined: every change behind this position is written to it; no document has a lower version (bytes).
        published: whether the alias serves it. Of an index's seeded generations one is, the others are kept.
        pinned: the hash of the schema that a rollback has turned away from: while the file says that,
            nothing newer is built.
        frozen: why it is not followed any more; it then only waits to be dropped.
        order: the last order that was carried out on it.
        history: of its shards (`headrace.sinks.opensearch.shard_history`); empty where nobody could ask.
    """

    index: str
    generation: str
    uuid: str
    hash: str
    seeded_at: Lsn | None = None
    as_of: Lsn = 0
    joined: Lsn = 0
    published: bool = False
    pinned: str = ""
    frozen: str = ""
    order: str = ""
    history: tuple[str, ...] = ()

    @property
    def building(self) -> bool:
        """Whether documents are still missing."""
        return self.seeded_at is None

    @property
    def followed(self) -> bool:
        """Whether live changes are written to it."""
        return not self.frozen


@dataclass(frozen=True, slots=True)
class PipelineState:
    """Everything that a restart needs and the slot does not know.

    Attributes:
        system_identifier: of the PostgreSQL cluster, as it prints it.
        consistent_point: where the slot began.
        applied: every change up to here is durable in the documents; the slot is confirmed no further.
        ahead: where documents are deferred: every change up to here is durable or deferred, and the stream
            goes on from here; else None.
        deferred_in: the index of their keys, as it was when `ahead` was noted; None where it is not known.
        last: the last transaction with a change before `reached`; None where it is not known.
        began: where the timeline left the one before it (bytes), 0 for the first; None where it is not known.
        standby: whether the server is a standby; None where it is not known.
        generations: all that are written or kept, in the order in which they were made.
        published: the membership of each table in the publication, as the server names it; another one
            than here means that changes in between are not in the log.
        catalog: what the documents depend on in the database's catalog, as it was when they were seeded or
            a run began last (`headrace.catalog.fingerprint`).
        identities_before: by table, the SQL that gives it its old replica identity back.
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
    identities_before: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    catalog: str = ""
    counters: Counters = Counters()
    ahead: Lsn | None = None
    last: KnownCommit | None = None
    began: Lsn | None = None
    deferred_in: Identity | None = None
    standby: bool | None = None

    @property
    def reached(self) -> Lsn:
        """Up to where changes need not be read again."""
        return self.applied if self.ahead is None else self.ahead

    @property
    def deferred_place(self) -> Identity | None:
        """The index that documents are deferred in; None where none are, or it is not known."""
        return None if self.ahead is None else self.deferred_in

    def of(self, index: str) -> tuple[GenerationState, ...]:
        """The generations of one logical index, oldest first."""
        return tuple(one for one in self.generations if one.index == index)

    def served(self, index: str) -> GenerationState | None:
        """The generation that its readers see; None before the first is complete."""
        return next((one for one in self.of(index) if one.published), None)

    @property
    def seeded(self) -> bool:
        """Whether readers of every logical index see a generation that is complete and followed."""
        right = {one.index for one in self.generations if one.published and one.followed}
        return self.phase == "following" and right == {one.index for one in self.generations}

    def follows(self, generation: str) -> bool:
        """Whether live changes are written to the generation of this concrete name."""
        return any(one.generation == generation and one.followed for one in self.generations)

    def changed(self, *generations: GenerationState) -> Self:
        """With these in the place of those of the same concrete name; a new one comes last."""
        by_name = {one.generation: one for one in generations}
        known = tuple(by_name.pop(one.generation, one) for one in self.generations)
        return replace(self, generations=(*known, *by_name.values()))

    def without(self, *names: str) -> Self:
        """Without the generations of these concrete names."""
        left = tuple(one for one in self.generations if one.generation not in names)
        return replace(self, generations=left)

    def frozen(self, reason: str) -> Self:
        """With nothing that is followed any more."""
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
        """The state after a batch. After a restart batches repeat, so `reached` may lie behind: kept.

        Args:
            deferred: some documents are not durable yet; then `applied` stays.
            deferred_in: where they are, if that was not known before, or not as well.
            last: the last transaction before `reached`; None where it is the one that is known.
            began: where the timeline begins, if it was not known before.
        """
        since = began if self.began is None else self.began
        known = self.last if last is None or reached < self.reached else last
        reached, counted = max(self.reached, reached), self.counters + counters
        state = replace(self, counters=counted, last=known, began=since)
        if deferred:
            return replace(state, ahead=reached, deferred_in=deferred_in or self.deferred_place)
        return replace(state, applied=reached, ahead=None, deferred_in=None)

    def place(self) -> dict[str, Any]:
        """Whose log the documents come from, and up to where they have it."""
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
        """As the meta index keeps it; positions as text."""
        return {
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
            "generations": [_generation_to_json(one) for one in self.generations],
            "published": dict(self.published),
            "identities_before": dict(self.identities_before),
            "catalog": self.catalog,
            "counters": {name: getattr(self.counters, name) for name in Counters.__slots__},
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Read what `to_json` made.

        Raises:
            KeyError, ValueError: something else wrote it.
        """
        return cls(
            system_identifier=found["system_identifier"],
            timeline=found["timeline"],
            database_oid=found["database_oid"],
            slot=found["slot"],
            publication=found["publication"],
            phase=found["phase"],
            consistent_point=parse_lsn(found["consistent_point"]),
            applied=parse_lsn(found["applied"]),
            ahead=parse_lsn(found["ahead"]) if found.get("ahead") else None,
            deferred_in=Identity.from_json(found["deferred_in"]) if found.get("deferred_in") else None,
            last=KnownCommit.from_json(found.get("last")),
            began=parse_lsn(found["timeline_began"]) if found.get("timeline_began") else None,
            standby=found.get("standby"),
            generations=_generations_from_json(found),
            published=found.get("published", {}),
            identities_before=found["identities_before"],
            catalog=found.get("catalog", ""),
            counters=Counters(**found["counters"]),
        )


def _generation_to_json(one: GenerationState) -> dict[str, Any]:
    return {
        "index": one.index,
        "generation": one.generation,
        "uuid": one.uuid,
        "hash": one.hash,
        "seeded_at": None if one.seeded_at is None else format_lsn(one.seeded_at),
        "as_of": format_lsn(one.as_of),
        "joined": format_lsn(one.joined),
        "published": one.published,
        "pinned": one.pinned,
        "frozen": one.frozen,
        "order": one.order,
        "history": list(one.history),
    }


def _generations_from_json(found: Mapping[str, Any]) -> tuple[GenerationState, ...]:
    if "generations" in found:
        return tuple(_generation_from_json(one) for one in found["generations"])
    # Before there were several to an index, what was seeded was served.
    older = [_generation_from_json({"index": name, **one}) for name, one in found["indexes"].items()]
    return tuple(replace(one, joined=one.seeded_at or 0, published=not one.building) for one in older)


def _generation_from_json(one: Mapping[str, Any]) -> GenerationState:
    return GenerationState(
        one["index"],
        one["generation"],
        one["uuid"],
        one["hash"],
        None if one["seeded_at"] is None else parse_lsn(one["seeded_at"]),
        parse_lsn(one.get("as_of", "0/0")),
        parse_lsn(one.get("joined", "0/0")),
        published=one.get("published", False),
        pinned=one.get("pinned", ""),
        frozen=one.get("frozen", ""),
        order=one.get("order", ""),
        history=tuple(one.get("history", ())),
    )
