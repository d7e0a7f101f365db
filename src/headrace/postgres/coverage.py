"""Report for each table whether the log carries what the documents need, and who can mend it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.model.names import TableName
from headrace.postgres.generated import Sender, describe_unsent, failing_writers, held_stored
from headrace.postgres.identity import (
    IdentityFacts,
    change_problem,
    identity_statements,
    needed_columns,
    stronger_identity,
)
from headrace.postgres.publication import Gap, PublicationFacts, publication_gaps
from headrace.postgres.setup import add_tables, listed_columns, roots_of, unpublished_tables
from headrace.postgres.slot import SlotFacts


@dataclass(frozen=True, slots=True)
class TableCoverage:
    """The coverage of one table that holds rows (a leaf, where `root` is partitioned).

    Attributes:
        root: the table that the documents name.
        required: the columns that an old row in the log must carry; the key is always among them.
        covered: those of them that an old row carries.
        missing: those that it does not carry.
        identity: the current replica identity: default, nothing, full, or the index's name.
        published: whether the publication carries the table's changes.
        hidden: what the publication hides of the table's changes, for people.
        manageable: whether Headrace itself may mend all of it.
        why_not: the reason where `manageable` is false.
        remedy: SQL that mends it; each statement by itself unless it begins a transaction.
    """

    table: TableName
    root: TableName
    required: tuple[str, ...]
    covered: tuple[str, ...]
    missing: tuple[str, ...]
    identity: str
    published: bool
    hidden: tuple[str, ...] = ()
    manageable: bool = True
    why_not: str = ""
    remedy: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether nothing is to be mended."""
        return not self.remedy and not self.why_not


def table_coverage(
    tables: Sequence[IdentityFacts],
    required: Mapping[TableName, Sequence[str]],
    *,
    publication: str,
    existing: PublicationFacts | None,
    slot: SlotFacts | None,
    managed: bool = True,
) -> tuple[TableCoverage, ...]:
    """Report the coverage of every table; arguments as of `headrace.postgres.setup.plan_setup`."""
    absent = frozenset(unpublished_tables(tables, existing))
    gaps: tuple[Gap, ...] = ()
    if existing is not None:
        read = listed_columns(tables, required, existing)
        gaps = publication_gaps(existing, read, roots_of(tables))
    sender = Sender(publication, existing, altered=managed)
    reports = []
    for facts in tables:
        table_gaps = [gap for gap in gaps if gap.table in (None, facts.table)]
        columns = required.get(facts.root, ())
        reasons, remedy, hidden = _check_identity(facts, columns, sender, added=facts.root in absent)
        if facts.root in absent:
            remedy += add_tables(publication, (facts.root,), slot)
            if not managed:
                reasons.append("manage_publication is false")
        for gap in table_gaps:
            remedy += gap.remedy
            reasons.append("the publication is not altered, only extended")
        needed = needed_columns(facts, columns)
        carried = facts.identity_columns - _unsent(facts, sent=existing is None or existing.sends_generated)
        reports.append(
            TableCoverage(
                table=facts.table,
                root=facts.root,
                required=tuple(sorted(needed)),
                covered=tuple(sorted(needed & carried)),
                missing=tuple(sorted(needed - carried)),
                identity=facts.current.index or facts.current.kind,
                published=facts.root not in absent,
                hidden=(*(gap.what for gap in table_gaps), *hidden),
                manageable=not reasons,
                why_not="; ".join(dict.fromkeys(reasons)),
                remedy=remedy,
            )
        )
    return tuple(reports)


def _unsent(facts: IdentityFacts, *, sent: bool) -> frozenset[str]:
    """Return the generated columns that are not in the log; `sent`: the publication sends stored ones."""
    return facts.generated - (facts.stored if sent else frozenset())


def _check_identity(
    facts: IdentityFacts, required: Sequence[str], sender: Sender, *, added: bool
) -> tuple[list[str], tuple[str, ...], tuple[str, ...]]:
    """Return why Headrace may not mend the replica identity, the SQL for it, and what is hidden of it."""
    # No identity helps where nothing is logged.
    if facts.kind in _NO_LOG or not facts.logged:
        return [_NO_LOG.get(facts.kind, "an unlogged table's changes are not in the log")], (), ()
    change = None if facts.kind == "p" else stronger_identity(facts, required)
    failing = failing_writers(facts, change, sender.silent(facts, added=added))
    if failing is not None:
        return [failing.cause], failing.remedy, () if change else (failing.unsent,)
    computed = _unsent(facts, sent=sender.sends) & needed_columns(facts, required)
    if computed:
        return [f"the server computes {', '.join(sorted(computed))}: the log does not carry it"], (), ()
    sender_steps = sender.steps([held_stored(facts, change)])
    remedy = tuple(sql for step in sender_steps for sql in step.statements)
    # A table that is only added now has nothing in the log that could lack a column.
    held = ", ".join(sorted(held_stored(facts, None)))
    hidden = (describe_unsent(held),) if held and sender_steps and not added else ()
    if change is None:
        return [], remedy, hidden
    problem = change_problem(facts, change)
    obstacles = [] if facts.owned else ["the table belongs to another role"]
    obstacles += [] if problem is None else [problem.cause]
    return obstacles, (*remedy, *identity_statements(change)), hidden


_NO_LOG = {
    "v": "a view's changes are not in the log",
    "m": "a materialised view's changes are not in the log",
    "f": "a foreign table's changes are not in the log",
}
