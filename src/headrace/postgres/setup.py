"""Plan what must be altered in the database before its changes can be read. Pure.

`ddl_plan` shows and runs the plan, `teardown` plans the way back. The order of the steps makes each half-way
point safe: the empty publication carries the record of what is altered; a table is published only after its
replica identity lets its writers write, and its old rows carry what is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal, TypeVar

from headrace.errors import BACKFILL_AGAIN, HeadraceError, Kind, as_clause
from headrace.model.names import TableName
from headrace.model.suggestion import some
from headrace.postgres.ddl_plan import SetupPlan, Step, drop_index
from headrace.postgres.generated import SENDING, Sender, failing_writers, held_stored
from headrace.postgres.identity import (
    SENDS_GENERATED_SINCE,
    IdentityChange,
    IdentityFacts,
    alter_identity,
    change_problem,
    create_index,
    identity_statements,
    needed_columns,
    stronger_identity,
)
from headrace.postgres.publication import NOTHING_CHANGED, PublicationFacts, SetupRecord, publication_problems
from headrace.postgres.publication_filters import WHOLE, Selections, table_clause
from headrace.postgres.quoting import identifier, literal
from headrace.postgres.quoting import table as quoted
from headrace.postgres.slot import SlotFacts

Policy = Literal["check", "auto", "ignore"]
_Value = TypeVar("_Value")

_PUBLISHED = "publish = 'insert, update, delete, truncate', publish_via_partition_root = false"


def plan_setup(
    tables: Sequence[IdentityFacts],
    required: Mapping[TableName, Sequence[str]],
    *,
    publication: str,
    existing: PublicationFacts | None,
    slot: SlotFacts | None,
    policy: Policy,
    version: int,
    managed: bool = True,
) -> SetupPlan:
    """Plan the publication and the replica identities that `required` needs.

    Args:
        tables: `read_identities` of the tables in `required`.
        required: for each table that documents read, the columns that the old row must carry.
        publication: the publication's name.
        existing: what `read_publication` returns for it.
        slot: what `read_slot` returns; where a slot exists, tables are added under a lock.
        policy: whether replica identities are only checked, altered, or left as they are.
        version: the server's, as `server_version_num`.
        managed: whether the publication may be created and extended; where not, its gaps are errors.
    """
    refused = (
        *unusable_tables(tables, required),
        *_check_publication(tables, required, publication, existing, slot),
    )
    missing = unpublished_tables(tables, existing)
    sender = Sender(publication, existing, altered=managed)
    checks = [
        _check_identity(facts, required.get(facts.root, ()), policy, sender, added=facts.root in missing)
        for facts in tables
    ]
    # A publication of somebody else's has their comment, and no room for our record.
    new_record = NOTHING_CHANGED if managed else None
    record = new_record if existing is None else existing.record
    identity_steps = _identity_steps(_known(check.change for check in checks), publication, record)
    steps = altering = identity_steps if policy == "auto" else ()
    if managed:
        # The order makes each half-way point safe, see the module's text.
        steps = (
            *(() if existing is not None else (create_publication(publication, version),)),
            *sender.steps(check.held for check in checks),
            *altering,
            *add_table_steps(missing, publication, slot),
        )
    elif missing:
        refused += (_unmanaged_publication(missing, publication, existing, slot, version),)
    return SetupPlan(
        steps,
        identity_steps if policy == "check" else (),
        (*refused, *_known(check.refused for check in checks)),
        (*chain.from_iterable(check.warnings for check in checks), *_warn_of_no_record(record, altering)),
        _known(check.outstanding for check in checks),
    )


def _known(values: Iterable[_Value | None]) -> tuple[_Value, ...]:
    return tuple(value for value in values if value is not None)


def _warn_of_no_record(record: SetupRecord | None, altering: Sequence[Step]) -> Iterable[str]:
    if record is None and altering:
        undo = "; ".join(step.undo for step in altering)
        yield f"the publication is not Headrace's and records nothing; undo by hand: {undo}"


def _check_publication(
    tables: Sequence[IdentityFacts],
    required: Mapping[TableName, Sequence[str]],
    publication: str,
    existing: PublicationFacts | None,
    slot: SlotFacts | None,
) -> tuple[HeadraceError, ...]:
    if existing is not None:
        read = listed_columns(tables, required, existing)
        return publication_problems(existing, read, roots_of(tables))
    # pgoutput looks a publication up as of each change: at the slot's beginning there was none.
    return () if slot is None else (publication_too_young(publication, slot),)


@dataclass(frozen=True, slots=True)
class _IdentityCheck:
    """What is to be done about the replica identity of one table that holds rows.

    Attributes:
        held: the stored generated columns that the identity holds afterwards.
        outstanding: what the operator is to run, where only checking is allowed.
    """

    held: frozenset[str]
    change: IdentityChange | None = None
    refused: HeadraceError | None = None
    warnings: tuple[str, ...] = ()
    outstanding: HeadraceError | None = None


def _check_identity(
    facts: IdentityFacts, columns: Sequence[str], policy: Policy, sender: Sender, *, added: bool
) -> _IdentityCheck:
    # A partitioned table without partitions has no old rows.
    change = None if facts.kind == "p" else stronger_identity(facts, columns)
    # Without any identity the table's writers would fail once it is published: that no policy ignores.
    is_ignored = policy == "ignore" and facts.writable_when_published
    after = None if is_ignored else change
    held = held_stored(facts, after)
    failing = failing_writers(facts, after, sender.silent(facts, added=added))
    refused = None if failing is None else failing.error()
    if change is None or (failing is not None and not is_ignored):
        return _IdentityCheck(held, refused=refused)
    inherits_none = (
        f"a new partition of {facts.root} does not inherit the replica identity that {facts.table} needs: "
        "run `headrace setup` after making one"
    )
    warnings = () if facts.root == facts.table else (inherits_none,)
    if is_ignored:
        stale = (
            f"the old rows of {facts.table} do not carry {_needed(change)}: "
            "documents can go stale when these columns change"
        )
        return _IdentityCheck(held, refused=refused, warnings=(*warnings, stale))
    problem = change_problem(facts, change)
    if problem is not None:
        return _IdentityCheck(held, refused=problem, warnings=warnings)
    outstanding = None if policy == "auto" else _identity_missing(facts, change, sender.steps([held]))
    return _IdentityCheck(held, change, warnings=warnings, outstanding=outstanding)


def _needed(change: IdentityChange) -> str:
    return ", ".join(sorted(change.needed)) or "a key"


def _identity_missing(facts: IdentityFacts, change: IdentityChange, before: Iterable[Step]) -> HeadraceError:
    """Return the error with the SQL that the operator is to run; the steps `before` come first."""
    if facts.writable_when_published:
        cause = f"the old rows of {facts.table} must carry {', '.join(sorted(change.needed))}"
    else:
        cause = (
            f"the table {facts.table} has no key: once it is published, every UPDATE and DELETE on it fails"
        )
    first = (sql for step in before for sql in step.statements)
    statements = (*first, *identity_statements(change))
    return HeadraceError(
        Kind.REPLICA_IDENTITY,
        f"{cause}; its replica identity is {change.before.kind}",
        f'Run `headrace setup`, or set replica_identity = "auto", or run: {"; ".join(statements)}',
    ).mended_by(f"{statement};" for statement in statements)


def unusable_tables(
    tables: Sequence[IdentityFacts], required: Mapping[TableName, Sequence[str]]
) -> tuple[HeadraceError, ...]:
    """Return why tables cannot be followed at all: absent, or without changes in the log."""
    absent = [
        HeadraceError(Kind.BINDING, f"there is no table {name}", "Correct the schema file.")
        for name in sorted(required.keys() - {facts.root for facts in tables})
    ]
    what = {"v": "a view", "m": "a materialised view", "f": "a foreign table"}
    return (
        *absent,
        *(
            HeadraceError(
                Kind.BINDING,
                f"{facts.table} is {what.get(facts.kind, 'unlogged')}: its changes are not in the log",
                "Name a table of this database that is logged.",
            )
            for facts in tables
            if facts.kind in what or not facts.logged
        ),
    )


def publication_too_young(publication: str, slot: SlotFacts) -> HeadraceError:
    """Return the error for a slot that is older than its publication, and cannot be read with it."""
    return HeadraceError(
        Kind.PUBLICATION,
        f"the slot {slot.name!r} exists, the publication {identifier(publication)} does not: a slot cannot "
        "be read with a publication that is younger",
        f"Name the publication that the slot was made for. If it was dropped: {as_clause(BACKFILL_AGAIN)}",
    )


def create_publication(publication: str, version: int) -> Step:
    """Return the step that creates an empty publication."""
    named = identifier(publication)
    why = "a publication lists the tables whose changes are read, and its comment what else is altered"
    if version >= SENDS_GENERATED_SINCE:
        why += "; it also sends stored generated columns, if a table has any"
    return Step(
        (f"CREATE PUBLICATION {named} WITH ({_options(version)})", _comment(publication, NOTHING_CHANGED)),
        cost="none while it is empty",
        undo=f"DROP PUBLICATION {named}",
        why=why,
    )


def _options(version: int) -> str:
    return f"{_PUBLISHED}, {SENDING}" if version >= SENDS_GENERATED_SINCE else _PUBLISHED


def _comment(publication: str, record: SetupRecord) -> str:
    return f"COMMENT ON PUBLICATION {identifier(publication)} IS {literal(record.comment()).strip()}"


def _identity_steps(
    changes: Sequence[IdentityChange], publication: str, record: SetupRecord | None
) -> tuple[Step, ...]:
    steps: list[Step] = []
    for change in changes:
        if record is not None:
            # The identity before Headrace came, also after a second alteration: that one is restored.
            first = record.identities.get(change.table, (change.before, change.before))[0]
            record = replace(
                record,
                identities={**record.identities, change.table: (first, change.identity)},
                indexes=record.indexes.union([] if change.new_index is None else [change.new_index]),
            )
        note = () if record is None else (_comment(publication, record),)
        if change.new_index is not None:
            steps.append(_index_step(change, change.new_index, note))
        steps.append(_identity_step(change, note))
    return tuple(steps)


def _index_step(change: IdentityChange, index: TableName, note: tuple[str, ...]) -> Step:
    drop = drop_index(index)
    columns = ", ".join(change.index_columns)
    return Step(
        # The record first: CONCURRENTLY runs in no transaction, and a kill must leave no unknown index.
        (*note, drop, create_index(change)),
        lock="SHARE UPDATE EXCLUSIVE: writers go on; it waits for older transactions",
        cost="one more index to keep, written with every change of its columns",
        undo=drop,
        why=f"a replica identity needs a unique index over {columns}, and {change.table} has none",
        alone=True,
        tables=(change.table,),
    )


def _identity_step(change: IdentityChange, note: tuple[str, ...]) -> Step:
    full = change.identity.kind == "full"
    return Step(
        (alter_identity(change.table, change.identity), *note),
        lock=f"ACCESS EXCLUSIVE on {change.table}, for a moment: everyone waits while it waits",
        cost="every UPDATE and DELETE writes the whole old row to the log"
        if full
        else "an UPDATE that changes one of the columns writes their old values to the log",
        undo=alter_identity(change.table, change.before),
        why=f"the old rows of {change.table} must carry {_needed(change)}",
        tables=(change.table,),
    )


def stream_columns(
    tables: Sequence[IdentityFacts], required: Mapping[TableName, Sequence[str]]
) -> dict[TableName, frozenset[str]]:
    """Return for each table that holds rows the columns that its old rows in the log must carry."""
    return {facts.table: needed_columns(facts, required.get(facts.root, ())) for facts in tables}


def listed_columns(
    tables: Sequence[IdentityFacts], required: Mapping[TableName, Sequence[str]], existing: PublicationFacts
) -> dict[TableName, frozenset[str]]:
    """As `stream_columns`, without unsent generated columns, which no column list hides."""
    unlisted = {
        facts.table: facts.generated
        for facts in tables
        if not existing.sends_generated or existing.name in facts.silent
    }
    read = stream_columns(tables, required)
    return {table: columns - unlisted.get(table, frozenset()) for table, columns in read.items()}


def roots_of(tables: Sequence[IdentityFacts]) -> dict[TableName, TableName]:
    """Map each table that holds rows to the table that the documents name."""
    return {facts.table: facts.root for facts in tables}


def unpublished_tables(
    tables: Sequence[IdentityFacts], existing: PublicationFacts | None
) -> tuple[TableName, ...]:
    """Return the tables that the publication does not carry, as the documents name them."""
    leaves: dict[TableName, set[TableName]] = {}
    for facts in tables:
        leaves.setdefault(facts.root, set()).add(facts.table)
    return tuple(
        root
        for root, parts in sorted(leaves.items())
        if existing is None or not existing.publishes(root, frozenset(parts))
    )


def add_tables(
    publication: str, names: Sequence[TableName], slot: SlotFacts | None, selections: Selections | None = None
) -> tuple[str, ...]:
    """Return the statements of one transaction that adds tables to the publication.

    An existing slot would lose what open transactions wrote before: the lock waits until they have ended.
    """
    chosen = selections or {}
    listed = ", ".join(table_clause(name, chosen.get(name, WHOLE)) for name in names)
    add = f"ALTER PUBLICATION {identifier(publication)} ADD TABLE {listed}"
    if slot is None:
        return (add,)
    return (f"LOCK TABLE {', '.join(map(quoted, names))} IN SHARE ROW EXCLUSIVE MODE", add)


def add_table_steps(
    missing: Sequence[TableName],
    publication: str,
    slot: SlotFacts | None,
    selections: Selections | None = None,
) -> tuple[Step, ...]:
    """Return the step that adds tables, if any are missing."""
    if not missing:
        return ()
    listed = ", ".join(quoted(name) for name in missing)
    return (
        Step(
            add_tables(publication, missing, slot, selections),
            lock="SHARE UPDATE EXCLUSIVE on the tables: no other session waits"
            if slot is None
            else "SHARE ROW EXCLUSIVE on the tables, for a moment: writers wait, readers do not",
            cost="their changes are decoded and sent",
            undo=f"ALTER PUBLICATION {identifier(publication)} DROP TABLE {listed}",
            why=f"the publication sends the changes of {some([str(name) for name in missing])}",
            tables=tuple(missing),
        ),
    )


def _unmanaged_publication(
    missing: Sequence[TableName],
    publication: str,
    existing: PublicationFacts | None,
    slot: SlotFacts | None,
    version: int,
) -> HeadraceError:
    """Return the error for what `manage_publication = false` leaves to the database's owner."""
    named = identifier(publication)
    if existing is None:
        names = ", ".join(quoted(name) for name in missing)
        cause = f"there is no publication {named}"
        sql = [f"CREATE PUBLICATION {named} FOR TABLE {names} WITH ({_options(version)});"]
    else:
        cause = f"the publication {named} does not publish {', '.join(map(str, missing))}"
        sql = [step.sql.replace("\n", " ") for step in add_table_steps(missing, publication, slot)]
    return HeadraceError(
        Kind.PUBLICATION, f"{cause}, and manage_publication is false", f"Let its owner run: {' '.join(sql)}"
    ).mended_by(sql)
