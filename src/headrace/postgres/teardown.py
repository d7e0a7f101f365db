"""Plan how to take back everything that Headrace created in the database. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.errors import Kind
from headrace.model.names import TableName
from headrace.postgres.ddl_plan import SetupPlan, Step, drop_index
from headrace.postgres.identity import IdentityFacts, alter_identity
from headrace.postgres.publication import OPERATIONS, PublicationFacts, RecordedIdentity, SetupRecord
from headrace.postgres.quoting import identifier, literal
from headrace.postgres.slot import SlotFacts, slot_problem


def plan_teardown(
    tables: Sequence[IdentityFacts],
    *,
    publication: PublicationFacts | None,
    slot: SlotFacts | None,
    database: str,
) -> SetupPlan:
    """Plan to take back what Headrace created: slot, publication, replica identities, indexes.

    Args:
        tables: `read_identities` of the tables in the publication's record.
        publication: the publication; it is dropped, and its record undone, only where Headrace created it.
        slot: the slot of the deployment's name; it is dropped only where Headrace can have created it. None
            where there is none.
        database: the deployment's.
    """
    foreign = None if slot is None else slot_problem(slot, database)
    steps: tuple[Step, ...] = ()
    stays: tuple[str, ...] = ()
    if foreign is not None and foreign.kind is Kind.CONFIG:  # another program has one of this name
        stays = (f"{foreign.cause}: it stays",)
    elif slot is not None:
        # The slot first: it is what keeps the server's log, and the rest may fail.
        drop_slot = Step(
            (f"SELECT pg_drop_replication_slot({literal(slot.name)})",),
            cost="changes from now on are not kept; the documents must be backfilled again",
            undo="none",
            why=f"the slot {slot.name} keeps the server's log",
        )
        steps = (drop_slot,)
    if publication is None:
        return SetupPlan(steps, warnings=stays)
    if publication.record is None:
        named = f"the publication {identifier(publication.name)} was not created by Headrace and stays"
        return SetupPlan(steps, warnings=(*stays, named))
    restored, warnings, used = _restore_identities(publication.record, tables)
    dropped = tuple(_drop_index(index) for index in sorted(publication.record.indexes - used))
    silenced = (_stop_publishing(publication.name),) if restored else ()
    # The publication last: its comment is the record by which a second call finishes the work.
    drop_publication = f"DROP PUBLICATION {identifier(publication.name)}"
    last = Step((drop_publication,), "`headrace setup`", "the publication was made by Headrace")
    return SetupPlan((*steps, *silenced, *restored, *dropped, last), warnings=(*stays, *warnings))


def _restore_identities(
    record: SetupRecord, tables: Sequence[IdentityFacts]
) -> tuple[list[Step], list[str], set[TableName]]:
    """Return the steps that restore identities, warnings of those that stay, and indexes that these use."""
    steps: list[Step] = []
    warnings: list[str] = []
    used: set[TableName] = set()
    present = {facts.table: facts for facts in tables}
    for name, (before, after) in sorted(record.identities.items()):
        facts = present.get(name)
        if facts is None or facts.current == before:  # a table that was dropped needs nothing
            continue
        # What somebody has set since is theirs.
        if facts.current != after:
            warnings.append(f"the replica identity of {name} was altered since by another role and stays")
        elif before.index is not None and not facts.has_index(before.index):
            warnings.append(f"the replica identity of {name} stays: its index {before.index} is gone")
            used.add(TableName(name.schema, after.index or ""))
        else:
            steps.append(_restore_identity(name, before, after))
    return steps, warnings, used


def _restore_identity(name: TableName, before: RecordedIdentity, after: RecordedIdentity) -> Step:
    return Step(
        (alter_identity(name, before),),
        lock=f"ACCESS EXCLUSIVE on {name}, for a moment: everyone waits while it waits",
        undo=alter_identity(name, after),
        why=f"the replica identity of {name} was {before.kind}",
    )


def _stop_publishing(publication: str) -> Step:
    """Return the step after which no table needs a replica identity, however it is published.

    It comes before the identities go back, or writers of tables without a key would fail.
    """
    setting = f"ALTER PUBLICATION {identifier(publication)} SET (publish = {{}})"
    return Step(
        (setting.format(literal("insert")),),
        undo=setting.format(literal(", ".join(OPERATIONS))),
        why="the tables are no longer read",
    )


def _drop_index(index: TableName) -> Step:
    return Step(
        (drop_index(index),),
        lock="SHARE UPDATE EXCLUSIVE: writers go on",
        undo="`headrace setup`",
        why=f"the index {index} was made by Headrace",
        alone=True,
    )
