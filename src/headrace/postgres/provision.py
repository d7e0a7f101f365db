"""Prepare the publication and the slot of a source on the server.

This is for programs that use the source by itself. A deployment of documents plans its set-up from its
schemas (`headrace.postgres.setup`). Both plan the alterations as data first. The publication is created
before the slot.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from types import MappingProxyType

from headrace.errors import HeadraceError, Kind
from headrace.model.lsn import Lsn
from headrace.model.names import TableName, name_arrays
from headrace.postgres.connection import Connection, connect, place, query
from headrace.postgres.ddl_plan import LockTimeoutError, SetupPlan, execute_plan, try_plan
from headrace.postgres.generated import Sender, failing_writers, held_stored
from headrace.postgres.identity import (
    IdentityFacts,
    identity_statements,
    read_identities,
    stronger_identity,
    whole_old_rows,
)
from headrace.postgres.locks import publication_lock
from headrace.postgres.publication import PublicationFacts, in_one_transaction, read_publication
from headrace.postgres.publication_filters import (
    WHOLE,
    PublicationRequirements,
    Selections,
    check_requirements,
    selection_problem,
    with_row_columns,
)
from headrace.postgres.quoting import identifier
from headrace.postgres.server import (
    ServerFacts,
    inspect_server,
    reader_problems,
    server_problems,
    server_warnings,
)
from headrace.postgres.setup import (
    add_table_steps,
    add_tables,
    create_publication,
    publication_too_young,
    unpublished_tables,
    unusable_tables,
)
from headrace.postgres.slot import ExportedSlot, SlotFacts, create_slot, read_slot, slot_in_use, slot_problem
from headrace.postgres.sql_files import read_sql

_READER_ENDS_WITHIN = 75.0
_WRITERS_END_WITHIN = 60.0
_POLL_SECONDS = 0.1
_TRIAL_WAITS = 0.5
_WRITERS = read_sql(__package__, "writers")

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PreparedSlot:
    """A slot that can be read.

    Attributes:
        confirmed: the position up to which it is confirmed (bytes).
        server: the server that has the slot.
    """

    confirmed: Lsn
    server: ServerFacts


def prepare_slot(
    url: str,
    *,
    slot: str,
    publication: str,
    tables: Sequence[TableName],
    create: bool,
    requirements: Mapping[TableName, PublicationRequirements] = MappingProxyType({}),
    temporary: bool = False,
    keep: Callable[[ExportedSlot], None] = ExportedSlot.close,
) -> PreparedSlot:
    """Make sure that `slot` and `publication` exist and fit; create what is missing.

    Args:
        url: the database.
        slot: the slot's name.
        publication: the publication's name.
        tables: what must be published; Headrace's own publication is extended by them.
        create: whether anything may be created.
        requirements: what is required of tables: a new publication sends it, an existing one is compared with
            it.
        temporary: the slot is created, and lives as long as the connection that is given to `keep`.
        keep: receives a new slot with its exported snapshot, and has to close it.

    Raises:
        HeadraceError: SLOT_UNKNOWN or PUBLICATION where something is missing and must not, or cannot, be
            created, or is not what was required; REPLICA_IDENTITY where publishing would make a table's
            writers fail; SLOT_IN_USE; SLOT_LOST, PRIVILEGE, NO_FREE_SLOT, WAL_LEVEL, CONFIG, BINDING,
            CONNECTION.
    """
    with connect(url) as connection:
        server = _check_server(connection, url, tables)
        with publication_lock(connection, publication):
            existing = read_publication(connection, publication)
            if existing is None and not (create and tables):
                raise _no_publication(publication, url)
            # The temporary slot is not made yet: one of its name is another one, and refused below.
            before = None if temporary else read_slot(connection, slot)
            publisher = _Publisher(connection, publication, existing, before, requirements)
            execute_plan(publisher.plan(tables, create=create), connection)
        facts = _await_unread_slot(connection, slot)
    if facts is not None:
        unfit_slot = _not_temporary(slot) if temporary else slot_problem(facts, server.database)
        if unfit_slot is not None:
            raise unfit_slot
        return PreparedSlot(facts.confirmed_flush or 0, server)
    if not create:
        raise HeadraceError(
            Kind.SLOT_UNKNOWN,
            f"there is no replication slot {slot!r} at {place(url)}",
            "Set createSlot to true, or create it with pg_create_logical_replication_slot.",
        )
    # Only now: a slot cannot be read with a publication that is younger.
    exported = create_slot(url, slot, temporary=temporary)
    keep(exported)
    return PreparedSlot(exported.consistent_point, server)


def find_reading_problems(url: str, slot: str) -> list[HeadraceError]:
    """Return why `prepare_slot` could not make a slot, or use the one that is there; nothing is changed.

    Raises:
        HeadraceError: CONNECTION; what keeps the server from being looked at.
    """
    with connect(url) as connection:
        server = inspect_server(connection, url)
        facts = read_slot(connection, slot)
    unfit_slot = None if facts is None else slot_problem(facts, server.database)
    problems = [*server_problems(server), *reader_problems(url, server, new_slot=facts is None)]
    return problems if unfit_slot is None else [*problems, unfit_slot]


def try_publishing(
    url: str,
    *,
    slot: str,
    publication: str,
    tables: Sequence[TableName],
    requirements: Mapping[TableName, PublicationRequirements],
) -> None:
    """Raise what `prepare_slot` would raise of the publication, which stays as it is.

    The statements run in a transaction that is taken back: a role's attributes do not say what it may do.

    Raises:
        HeadraceError: PUBLICATION, REPLICA_IDENTITY, BINDING, PRIVILEGE, CONNECTION, DATABASE.
    """
    with connect(url) as connection:
        existing = read_publication(connection, publication)
        publisher = _Publisher(connection, publication, existing, read_slot(connection, slot), requirements)
        plan = publisher.plan(tables, create=True)
        with suppress(LockTimeoutError):  # who has the lock now says nothing of a start
            try_plan(plan, connection, lock_timeout=_TRIAL_WAITS)


def _check_server(connection: Connection, url: str, tables: Sequence[TableName]) -> ServerFacts:
    """Return the server's facts; raise its first problem, and log its warnings."""
    server = inspect_server(connection, url)
    for problem in server_problems(server):
        raise problem
    whole = whole_old_rows(read_identities(connection, tables)) if server.loses_defaults else ()
    for warning in server_warnings(server, whole):
        _LOG.warning(warning)
    return server


def ensure_published(
    url: str,
    *,
    slot: str,
    publication: str,
    tables: Sequence[TableName],
    added: Sequence[TableName],
    create: bool,
    requirements: Mapping[TableName, PublicationRequirements],
) -> None:
    """Make sure that a slot that is in use, or will be again, sends `tables`.

    A missing publication is left to the stream, whose error says what was lost with it.

    Args:
        url: the database.
        slot: a slot that exists: tables are added under a lock that waits for their writers.
        publication: the publication's name; Headrace's own is extended.
        tables: what must be published; those that do not exist any more are left out.
        added: those of them that may be added to the publication.
        create: whether it may be extended.
        requirements: as for `prepare_slot`.

    Raises:
        HeadraceError: PUBLICATION, REPLICA_IDENTITY, BINDING, PRIVILEGE, CONNECTION, DATABASE (also: no lock
            within five seconds, or writers of an added table that do not end within a minute).
    """
    with connect(url) as connection, publication_lock(connection, publication):
        existing = read_publication(connection, publication)
        if existing is None:
            return
        present = {facts.root for facts in read_identities(connection, tables)}
        old = present.difference(added)
        published = [table for table in tables if table in old]
        publisher = _Publisher(connection, publication, existing, read_slot(connection, slot), requirements)
        execute_plan(publisher.plan(published, create=False), connection)
        if added:
            execute_plan(publisher.plan(added, create=create), connection)
            # After the tables were added, before their rows are read: nothing falls between snapshot and
            # stream.
            _await_writers(connection, added)


def _await_writers(connection: Connection, tables: Sequence[TableName]) -> None:
    """Wait until every transaction that writes to `tables` now has ended.

    Another role may have published a table a moment ago, without a lock that waits for writers. What a writer
    wrote before that is not in our stream, and in no snapshot before the writer ends (decision 0009).
    """
    names = {*tables, *(facts.table for facts in read_identities(connection, tables))}
    deadline = time.monotonic() + _WRITERS_END_WITHIN
    writing = _writers(connection, names)
    while writing:
        if time.monotonic() > deadline:
            raise HeadraceError(
                Kind.DATABASE,
                f"transactions that may be older than the publication of {', '.join(map(str, tables))} are "
                f"still open: {', '.join(sorted(set(writing.values())))}",
                "End them (pg_stat_activity), and start again.",
            )
        time.sleep(_POLL_SECONDS)
        # Only those of the first look: who came later writes to a table that is published already.
        now = _writers(connection, names)
        writing = {transaction: pid for transaction, pid in writing.items() if transaction in now}


def _writers(connection: Connection, tables: Collection[TableName]) -> dict[str, str]:
    return dict(query(connection, _WRITERS, name_arrays(tables)))


@dataclass(frozen=True, slots=True)
class _Publisher:
    """Plans what is to be published, by one step.

    A role that owns the tables could not extend a publication that another role has begun.
    """

    connection: Connection
    publication: str
    existing: PublicationFacts | None
    slot: SlotFacts | None
    requirements: Mapping[TableName, PublicationRequirements]

    def plan(self, tables: Sequence[TableName], *, create: bool) -> SetupPlan:
        """Plan to create the publication, or to extend it by those of `tables` that it does not have."""
        publication, existing = self.publication, self.existing
        found = read_identities(self.connection, tables)
        missing = unpublished_tables(found, existing)
        if existing is not None:
            check_requirements(self.connection, existing, found, self.requirements)
        added = [facts for facts in found if facts.root in missing]
        selections = self._selections(added)
        refused = list(unusable_tables(found, dict.fromkeys(tables, ())))
        refused += self._refusals(missing, selections, create=create)
        sender = Sender(publication, existing, altered=create)
        for facts in added:
            refused += _writers_would_fail(facts, selections, sender.silent(facts, added=True))
        version = self.connection.info.server_version
        steps = (
            *(() if existing is not None else (create_publication(publication, version),)),
            *sender.steps(held_stored(facts, None) for facts in found),
            *add_table_steps(missing, publication, self.slot, selections),
        )
        statements = tuple(chain.from_iterable(step.statements for step in steps))
        return SetupPlan((replace(steps[0], statements=statements),) if steps else (), refused=tuple(refused))

    def _refusals(
        self, missing: Sequence[TableName], selections: Selections, *, create: bool
    ) -> Iterator[HeadraceError]:
        """Yield why the publication itself cannot be created or extended."""
        publication, existing, slot = self.publication, self.existing, self.slot
        # pgoutput looks publications up as of each change: at the slot's beginning there was none.
        if existing is None and slot is not None:
            yield publication_too_young(publication, slot)
        if existing is not None and missing and not (create and existing.own):
            sql = in_one_transaction(add_tables(publication, missing, slot, selections))
            yield _not_published(publication, missing, sql)

    def _selections(self, added: Iterable[IdentityFacts]) -> Selections:
        """Return what is published of each added table of which not everything is."""
        parts = {
            facts.root: required.sent(facts)
            for facts in added
            if (required := self.requirements.get(facts.root)) is not None
        }
        return with_row_columns(
            self.connection, {table: part for table, part in parts.items() if part != WHOLE}
        )


def _not_published(publication: str, missing: Iterable[TableName], sql: str) -> HeadraceError:
    return HeadraceError(
        Kind.PUBLICATION,
        f"the publication {identifier(publication)} does not publish {', '.join(map(str, missing))}",
        f"Let its owner run: {sql} Or name another publication.",
    )


def _writers_would_fail(
    facts: IdentityFacts, selections: Selections, silent: tuple[str, ...]
) -> list[HeadraceError]:
    problems = []
    unwritable = facts.kind != "p" and not facts.writable_when_published
    change = stronger_identity(facts, ()) if unwritable else None
    failing = failing_writers(facts, change, silent)
    if failing is not None:
        problems.append(failing.error())
    elif change is not None:
        sql = "; ".join(identity_statements(change))
        problems.append(
            HeadraceError(
                Kind.REPLICA_IDENTITY,
                f"the table {facts.table} has no key: once it is published, every UPDATE and DELETE on it "
                "fails",
                f"Give it a primary key, or run: {sql}",
            )
        )
    chosen = selections.get(facts.root)
    unfit = None if chosen is None else selection_problem(facts, chosen)
    return problems if unfit is None else [*problems, unfit]


def _not_temporary(name: str) -> HeadraceError:
    return HeadraceError(
        Kind.CONFIG,
        f"there is a replication slot {name!r} already, and it is not temporary",
        "Name another slot, leave the option temporarySlot out, or drop this one.",
    )


def _no_publication(name: str, url: str) -> HeadraceError:
    return HeadraceError(
        Kind.PUBLICATION,
        f"there is no publication {name!r} at {place(url)}",
        "Name the tables (option tables) so that it can be created, or create it.",
    )


def _await_unread_slot(connection: Connection, slot: str) -> SlotFacts | None:
    """Wait until the slot has no reader, and return it: a reader that is ending may still move it.

    The server itself takes up to `wal_sender_timeout` (60 s) to notice that a reader's machine is gone.
    """
    deadline = time.monotonic() + _READER_ENDS_WITHIN
    while (facts := read_slot(connection, slot)) is not None and facts.active_pid is not None:
        if time.monotonic() > deadline:
            raise slot_in_use(facts) from None
        time.sleep(_POLL_SECONDS)
    return facts
