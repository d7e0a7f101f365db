"""Hold DDL as steps that can be checked, shown, undone and run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psycopg
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from headrace.errors import HeadraceError, Kind
from headrace.model.names import TableName
from headrace.postgres.connection import Connection, execute, refused_statement
from headrace.postgres.quoting import identifier
from headrace.postgres.quoting import table as quoted

_INDEX_WAIT_SECONDS = 600
# A walsender frees its slot some moments after its client has gone.
_RETRYING = Retrying(
    retry=retry_if_exception_type(psycopg.errors.ObjectInUse),
    stop=stop_after_delay(5),
    wait=wait_fixed(0.05),
    reraise=True,
)
_SECONDARY = ("COMMENT", "DROP INDEX", "LOCK TABLE")


@dataclass(frozen=True, slots=True)
class Step:
    """One alteration of the database, with what it locks, costs and how to undo it.

    Attributes:
        statements: SQL, run in one transaction, or one by one where `alone`.
        undo: the SQL that takes it back.
        why: the reason, for people.
        lock: what is locked, and who waits for it.
        cost: what it costs from then on, for people.
        alone: whether the statements refuse to run in a transaction (CONCURRENTLY).
        tables: those that it concerns; empty where it concerns all.
    """

    statements: tuple[str, ...]
    undo: str
    why: str
    lock: str = "none"
    cost: str = "none"
    alone: bool = False
    tables: tuple[TableName, ...] = ()

    @property
    def gist(self) -> tuple[str, ...]:
        """The main statements: without comments, locks and dropped leftovers."""
        return tuple(sql for sql in self.statements if not sql.startswith(_SECONDARY)) or self.statements

    @property
    def sql(self) -> str:
        """The step as a script."""
        body = ";\n".join(self.statements) + ";"
        return body if self.alone or len(self.statements) == 1 else f"BEGIN;\n{body}\nCOMMIT;"


@dataclass(frozen=True, slots=True)
class SetupPlan:
    """The steps that prepare a database, and what stands against them.

    Attributes:
        steps: what `execute_plan` runs, in order.
        proposed: steps that the policy `check` leaves to the operator: shown, never run.
        refused: errors for which nothing may run; empty where the steps may run.
        warnings: problems that stay and are accepted.
        outstanding: errors for which nothing may run until the operator has run what is `proposed`.
    """

    steps: tuple[Step, ...]
    proposed: tuple[Step, ...] = ()
    refused: tuple[HeadraceError, ...] = ()
    warnings: tuple[str, ...] = ()
    outstanding: tuple[HeadraceError, ...] = ()

    def raise_refusal(self) -> None:
        """Raise the first error for which nothing may run."""
        for error in (*self.refused, *self.outstanding):
            raise error

    def alters(self, publication: str) -> bool:
        """Return whether a step alters the settings of the publication, and not only its tables."""
        setting = f"ALTER PUBLICATION {identifier(publication)} SET ("
        return any(sql.startswith(setting) for step in self.steps for sql in step.statements)


def render(steps: Sequence[Step]) -> str:
    """Render the steps as an SQL script; each with its reason, lock, cost and undo as comments."""
    return "\n\n".join(
        f"-- {step.why}\n-- lock: {step.lock}\n-- cost: {step.cost}\n-- undo: {step.undo}\n{step.sql}"
        for step in steps
    )


def drop_index(index: TableName) -> str:
    """Return the statement that drops an index without blocking anyone."""
    return f"DROP INDEX CONCURRENTLY IF EXISTS {quoted(index)}"


class LockTimeoutError(HeadraceError):
    """A step waited too long for a lock: other transactions use the table."""


def execute_plan(
    plan: SetupPlan,
    connection: Connection,
    on_step: Callable[[Step], None] = lambda _: None,
    *,
    lock_timeout: float = 5.0,
) -> None:
    """Run a plan on an autocommit connection; call `on_step` with each step before it runs.

    A step that fails is rolled back. (An unfinished index stays; the record names it, and the same call
    replaces it.) Earlier steps stay, and the publication's
    comment lists them: the same call finishes the work, a teardown undoes it.

    Raises:
        HeadraceError: the plan's first refusal; PRIVILEGE, DATABASE (also: no lock within `lock_timeout`
            seconds, as `LockTimeoutError`), CONNECTION.
    """
    # Before anything runs: a set-up that cannot be finished is not begun.
    plan.raise_refusal()
    for number, step in enumerate(plan.steps):
        on_step(step)
        try:
            _RETRYING(_run, step, connection, lock_timeout)
        except psycopg.Error as error:
            raise _step_failed(plan.steps[number:], error, connection, lock_timeout) from error


def try_plan(plan: SetupPlan, connection: Connection, *, lock_timeout: float) -> None:
    """Run a plan of at most one step, and take it back; no writer waits for it.

    Raises:
        HeadraceError: as `execute_plan`.
    """
    plan.raise_refusal()
    if not plan.steps:
        return
    [step] = plan.steps
    try:
        with connection.transaction(force_rollback=True):
            execute(connection, f"SET LOCAL lock_timeout = {int(1000 * lock_timeout)}")
            # Without LOCK TABLE, which writers would wait for.
            for statement in step.gist:
                execute(connection, statement)
    except psycopg.Error as error:
        raise _step_failed(plan.steps, error, connection, lock_timeout) from error


def _run(step: Step, connection: Connection, lock_timeout: float) -> None:
    limit = max(1, int(1000 * (_INDEX_WAIT_SECONDS if step.alone else lock_timeout)))
    if not step.alone:
        # Publication, identity and the comment that records it change together, or not at all.
        with connection.transaction():
            execute(connection, f"SET LOCAL lock_timeout = {limit}")
            # Later steps rely on this one, also after a crash of the server.
            execute(connection, "SET LOCAL synchronous_commit = on")
            for statement in step.statements:
                execute(connection, statement)
        return
    # CONCURRENTLY refuses a transaction, so SET LOCAL is of no use here.
    execute(connection, f"SET lock_timeout = {limit}")
    try:
        for statement in step.statements:
            execute(connection, statement)
    finally:
        # A later step must not inherit the limit.
        if not connection.broken:
            execute(connection, "SET lock_timeout = 0")


def _step_failed(
    steps: Sequence[Step], error: psycopg.Error, connection: Connection, lock_timeout: float
) -> HeadraceError:
    """Return the error of the first of these steps; the others have not run either."""
    step = steps[0]
    cause = refused_statement(connection, error)
    statement = "; ".join(step.gist)
    # Every write maintains an index that failed.
    leftovers = " An unfinished index may stay: the same command replaces it." if step.alone else ""
    # lock_not_available: lock_timeout has ended the wait.
    if error.sqlstate == "55P03":
        seconds = _INDEX_WAIT_SECONDS if step.alone else lock_timeout
        return LockTimeoutError(
            Kind.DATABASE,
            f"no lock within {seconds:g} s for: {statement}",
            "End the transactions that use the table (pg_stat_activity, pg_prepared_xacts), and run the same "
            "command again." + leftovers,
        )
    if error.sqlstate == "42501":
        sql = " ".join(step.sql for step in steps).replace("\n", " ")
        return HeadraceError(
            Kind.PRIVILEGE,
            f"{cause.cause}; needed for: {statement}",
            f"Let the owner of the tables (and of the publication, if there is one) run: {sql} Or GRANT "
            "CREATE ON DATABASE and membership of the owning role.",
        )
    return HeadraceError(cause.kind, f"{cause.cause}, in: {statement}", (cause.remedy + leftovers).strip())
