"""Find replica identities with an unsent generated column, for which an application's writes fail. Pure.

From PostgreSQL 18 on every UPDATE and DELETE of a published table fails unless all columns of its replica
identity are sent. A publication sends a stored generated column if it is set to, a virtual one never.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.errors import HeadraceError, Kind
from headrace.postgres.ddl_plan import Step
from headrace.postgres.identity import IdentityChange, IdentityFacts, identity_after, identity_statements
from headrace.postgres.publication import PublicationFacts
from headrace.postgres.quoting import identifier

SENDING = "publish_generated_columns = stored"


@dataclass(frozen=True, slots=True)
class FailingWriters:
    """Why every UPDATE and DELETE of a published table fails with a replica identity.

    Attributes:
        cause: the reason for people, with the table's name.
        unsent: what is not sent, as a text that follows "the publication … ".
        remedy: SQL that mends it, statement by statement; empty where only another identity does.
    """

    cause: str
    unsent: str
    remedy: tuple[str, ...] = ()

    def error(self) -> HeadraceError:
        """Return the error for it."""
        run = f"Run: {'; '.join(self.remedy)}; or give" if self.remedy else "Give"
        advice = f"{run} it a replica identity over a unique index of ordinary columns that are NOT NULL."
        error = HeadraceError(Kind.REPLICA_IDENTITY, self.cause, advice)
        return error.mended_by(f"{statement};" for statement in self.remedy)


@dataclass(frozen=True, slots=True)
class Sender:
    """The publication that a plan is for, and whether it sends generated columns.

    Attributes:
        existing: the publication as it is; None where it is to be created.
        altered: whether the plan may alter it.
    """

    name: str
    existing: PublicationFacts | None
    altered: bool

    @property
    def sends(self) -> bool:
        """Whether stored generated columns are sent once the plan has run."""
        return self.existing is None or self.existing.sends_generated or self._may_be_altered

    @property
    def _may_be_altered(self) -> bool:
        return self.altered and self.existing is not None and self.existing.own

    def silent(self, facts: IdentityFacts, *, added: bool) -> tuple[str, ...]:
        """Return the publications that will not send the table's stored generated columns.

        `added`: whether the plan adds the table.
        """
        # One publication that does not send the column is enough for writers to fail, also another program's.
        others = tuple(name for name in facts.silent if name != self.name)
        is_own_silent = not self.sends and (added or self.name in facts.silent)
        return (*others, self.name) if is_own_silent else others

    def steps(self, held: Iterable[frozenset[str]]) -> tuple[Step, ...]:
        """Return the step that makes the publication send them, if it is needed.

        `held`: the stored generated columns of each replica identity.
        """
        is_silent = self.existing is not None and not self.existing.sends_generated
        if not (is_silent and self._may_be_altered and any(held)):
            return ()
        return (
            Step(
                (send_generated(self.name),),
                cost="the log's changes come with their stored generated columns",
                undo=f"ALTER PUBLICATION {identifier(self.name)} SET (publish_generated_columns = none)",
                why="writers of a table fail where its replica identity holds a generated column that is not "
                "sent",
            ),
        )


def held_stored(facts: IdentityFacts, change: IdentityChange | None) -> frozenset[str]:
    """Return the stored generated columns of the identity after the change; none before PostgreSQL 18."""
    return identity_after(facts, change) & facts.stored


def failing_writers(
    facts: IdentityFacts, change: IdentityChange | None, silent: tuple[str, ...]
) -> FailingWriters | None:
    """Return why the table's writers fail once it is published with its identity after `change`, or None.

    Args:
        silent: the publications of it that will not send stored generated columns.
    """
    # A partitioned table holds no rows: its leaves have identities of their own.
    if facts.kind == "p":
        return None
    held = identity_after(facts, change)
    fails = "fails" if change is None else "would fail"
    verb, identity = ("has", facts.current) if change is None else ("needs", change.identity)
    reason = f"the table {facts.table} {verb} replica identity {identity.index or identity.kind}"
    if virtual := ", ".join(sorted(held & facts.virtual)):
        return FailingWriters(
            f"{reason}; no publication sends its virtual generated column {virtual}, so "
            f"every UPDATE and DELETE on the published table {fails}",
            describe_unsent(virtual),
        )
    stored = ", ".join(sorted(held & facts.stored))
    if not stored or not silent:
        return None
    names = ", ".join(identifier(name) for name in silent)
    return FailingWriters(
        f"{reason}; the publication {names} does not send its generated column {stored}, "
        f"so every UPDATE and DELETE on the published table {fails}",
        describe_unsent(stored),
        (*map(send_generated, silent), *(() if change is None else identity_statements(change))),
    )


def describe_unsent(columns: str) -> str:
    """Describe the unsent columns, as a text that follows "the publication … "."""
    return f"does not send the generated {columns} of the replica identity: UPDATE and DELETE fail"


def send_generated(publication: str) -> str:
    """Return the statement that makes a publication send stored generated columns."""
    return f"ALTER PUBLICATION {identifier(publication)} SET ({SENDING})"
