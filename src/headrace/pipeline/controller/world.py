"""What is, as one frozen value: state, server, slot, tables, sinks, query and backfills, seen in one round.

What could not be asked is `Unknown`. It is never taken for absent: a decision that needs it waits.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from headrace.errors import POLICIES, HeadraceError
from headrace.model.lsn import Lsn
from headrace.sinks.opensearch.shard_history import Identity
from headrace.state import PipelineState


def _nothing() -> Mapping[Any, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something that could not be asked in this round, and why.

    Attributes:
        taken: another process has taken what this one held, and may have written to it.
    """

    error: HeadraceError
    taken: bool = False


@dataclass(frozen=True, slots=True)
class ServerSeen:
    """The server and its log.

    Attributes:
        system: the identifier of the PostgreSQL cluster.
        database: the oid of the database.
        current: the end of the flushed log (bytes), read after the state: a running query moves both.
        standby: whether it is in recovery.
    """

    system: str
    timeline: int
    database: int
    current: Lsn
    standby: bool = False


@dataclass(frozen=True, slots=True)
class SlotSeen:
    """The replication slot.

    Attributes:
        name: its name.
        confirmed: its confirmed_flush_lsn (bytes), read before the state: a running query moves both.
        lost: why the server has removed log that the slot needs; empty where it has not.
        reader: who reads it, where that is not this run; else empty.
        over_budget: what the slot retains, where that is more than the policy allows; else empty.
    """

    name: str
    confirmed: Lsn
    lost: str = ""
    reader: str = ""
    over_budget: str = ""


class TableVerdict(enum.Enum):
    """What an altered table means for what was read of it. What is harmless is not listed at all."""

    LIKE_A_TRUNCATE = "rows are gone that the log does not name"
    READ_AGAIN = "what was read may be wrong"


@dataclass(frozen=True, slots=True)
class TableChange:
    """What became of a table since the catalog that the state stores.

    Attributes:
        what: in words, for users.
        seen_at: the end of the log (bytes) when this run saw it first: what is read after it is right again.
    """

    verdict: TableVerdict
    what: str
    seen_at: Lsn = 0


@dataclass(frozen=True, slots=True)
class CatalogSeen:
    """The catalog, compared with the one that the state stores.

    Attributes:
        text: the catalog as the state stores it.
        as_of: the position at which it was read (bytes).
        published: the membership of each table in the publication.
        changes: what was altered of the tables that a followed generation reads, by its id.
        set_up: what must be made in the database first, in words; empty where nothing must.
        unprepared: the indexes that this concerns.
    """

    text: str
    as_of: Lsn
    published: Mapping[str, int] = field(default_factory=_nothing)
    changes: Mapping[str, tuple[TableChange, ...]] = field(default_factory=_nothing)
    set_up: str = ""
    unprepared: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SinkSeen:
    """A sink that answers.

    Attributes:
        indexes: the concrete indexes of this deployment, by name.
        owners: the logical index of each.
        served: by logical index, the concrete index that readers see, and nothing else.
        read: every concrete index that some reader may see.
        faults: why a concrete index is not what is written any more, though one has its name.
        queryable: whether it can list its indexes; `indexes` says nothing otherwise.
        keys_lost: why documents that waited for the sink are not known any more; empty where they are.
        refused: why a concrete index has not the settings that it should have; it is written all the same.
    """

    indexes: Mapping[str, Identity] = field(default_factory=_nothing)
    owners: Mapping[str, str] = field(default_factory=_nothing)
    served: Mapping[str, str] = field(default_factory=_nothing)
    read: frozenset[str] = frozenset()
    faults: Mapping[str, str] = field(default_factory=_nothing)
    queryable: bool = True
    keys_lost: str = ""
    refused: Mapping[str, HeadraceError] = field(default_factory=_nothing)


@dataclass(frozen=True, slots=True)
class QuerySeen:
    """The query of this process.

    Attributes:
        plan: the ids of the generations that it writes.
        joined: those of them that every change after the stored position is written to, so that a backfill
            may read rows for them.
        leaving: those of a former plan that a batch may still write.
        starting: it does not read yet, and takes no other plan.
        outdated: what the plan is made of is another one, though its generations are the same.
        failure: why it has ended; None while it runs.
        held: why documents of a generation are deferred, by its id: it fails, or a table of it is locked.
    """

    plan: frozenset[str]
    joined: frozenset[str] = frozenset()
    leaving: frozenset[str] = frozenset()
    starting: bool = False
    outdated: bool = False
    failure: HeadraceError | None = None
    held: Mapping[str, HeadraceError] = field(default_factory=_nothing)


@dataclass(frozen=True, slots=True)
class BackfillSeen:
    """The backfill of one generation in this process.

    Attributes:
        complete: whether every range is read and the ids agree.
        failure: why it has ended without that; None where it has not.
        ending: it was asked to end, and may still write.
        locked: who has locked a table that it reads; None where it goes on.
    """

    complete: bool = False
    failure: HeadraceError | None = None
    ending: bool = False
    locked: HeadraceError | None = None


@dataclass(frozen=True, slots=True)
class Failures:
    """How often an action has failed in a row, since when, and when it is tried again (the run's clock).

    Attributes:
        order: the id of the order that the last try answered; empty for none.
    """

    error: HeadraceError
    times: int
    next_try: float
    since: float = 0.0
    order: str = ""

    def has_lasted(self) -> bool:
        """Whether it came so often, or for so long, that it does not pass by itself."""
        policy = POLICIES[self.error.kind]
        # To the last failure, not to now: a time in which nothing was tried proves nothing.
        return self.times >= policy.most_tries or self.next_try - self.since >= policy.most_seconds


@dataclass(frozen=True, slots=True)
class World:
    """What was seen in one round.

    Attributes:
        now: the run's clock (seconds).
        state: what is durable; None where nothing is stored.
        slot: None where the server has none of its name.
        catalog: None where nothing is known of it.
        sinks: by name; `""` is the one that keeps the state.
        reads: the tables that each generation reads, by its id; one whose schema nobody knows is absent.
        unfit: why a generation cannot be followed any more, by its id.
        deferred: by the id of a generation, how many documents wait to be written.
        query: None where none runs.
        backfills: by the id of a generation.
        failures: by the key of an action.
        carried_out: the ids of the orders that this process works on.
        lost_lock: why this process must not write any more; None while it holds lock and leases.
    """

    now: float
    state: PipelineState | Unknown | None
    server: ServerSeen | Unknown
    slot: SlotSeen | Unknown | None
    catalog: CatalogSeen | Unknown | None
    sinks: Mapping[str, SinkSeen | Unknown]
    reads: Mapping[str, frozenset[str]] = field(default_factory=_nothing)
    unfit: Mapping[str, str] = field(default_factory=_nothing)
    deferred: Mapping[str, int] = field(default_factory=_nothing)
    query: QuerySeen | None = None
    backfills: Mapping[str, BackfillSeen] = field(default_factory=_nothing)
    failures: Mapping[str, Failures] = field(default_factory=_nothing)
    carried_out: frozenset[str] = frozenset()
    lost_lock: HeadraceError | None = None
