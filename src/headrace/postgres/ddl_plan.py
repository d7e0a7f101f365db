"""What is one alteration of the database, and how is it shown and run?

Alterations are data first: a step can be judged, shown and undone before anything runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psycopg

from headrace.errors import HeadraceError, Kind
from headrace.model import TableName
from headrace.postgres.connection import Connection, execute
from headrace.postgres.quoting import identifier
from headrace.postgres.quoting import table as quoted
from headrace.postgres.session import database_error

_PATIENCE_SECONDS = 5.0
_INDEX_WAIT_SECONDS = 600
_CLEAN_UP_MILLISECONDS = 2000
_BESIDE = ("COMMENT", "DROP INDEX", "LOCK TABLE")


@dataclass(frozen=True, slots=True)
class Step:
    """One alteration of the database.

    Attributes:
        statements: run in one transaction, or one by one where `alone`.
        lock: what is locked, and whom that keeps waiting.
        cost: what it costs from then on.
        undo: the SQL that takes it back.
        why: the reason, for people.
        alone: whether the statements refuse to run in a transaction (CONCURRENTLY).
        clean_up: run if an `alone` statement fails.
    """

    statements: tuple[str, ...]
    lock: str
    cost: str
    undo: str
    why: str
    alone: bool = False
    clean_up: str = ""

    @property
    def gist(self) -> tuple[str, ...]:
        """The statements without those that only record or make room."""
        return tuple(sql for sql in self.statements if not sql.startswith(_BESIDE)) or self.statements

    @property
    def sql(self) -> str:
        """The step as a script."""
        body = ";\n".join(self.statements) + ";"
        return body if self.alone or len(self.statements) == 1 else f"BEGIN;\n{body}\nCOMMIT;"


@dataclass(frozen=True, slots=True)
class SetupPlan:
    """What is to be done.

    Attributes:
        steps: what `execute_plan` runs, in order.
        proposed: what the policy `check` leaves to people: shown, never run.
        refused: why nothing may run; empty where it may.
        warnings: what stays wrong and is accepted.
        outstanding: why nothing may run until somebody has agreed to what is `proposed`.
    """

    steps: tuple[Step, ...]
    proposed: tuple[Step, ...] = ()
    refused: tuple[HeadraceError, ...] = ()
    warnings: tuple[str, ...] = ()
    outstanding: tuple[HeadraceError, ...] = ()

    def alters(self, publication: str) -> bool:
        """Whether a step alters the publication itself, and not only which tables it has."""
        setting = f"ALTER PUBLICATION {identifier(publication)} SET ("
        return any(sql.startswith(setting) for step in self.steps for sql in step.statements)


def render(steps: Sequence[Step]) -> str:
    """The steps as an SQL script; each with its reason, lock, cost and undo as comments."""
    return "\n\n".join(
        f"-- {step.why}\n-- lock: {step.lock}\n-- cost: {step.cost}\n-- undo: {step.undo}\n{step.sql}"
        for step in steps
    )


def drop_index(index: TableName) -> str:
    """The statement that drops an index and keeps nobody waiting."""
    return f"DROP INDEX CONCURRENTLY IF EXISTS {quoted(index)}"


def execute_plan(
    plan: SetupPlan,
    connection: Connection,
    on_step: Callable[[Step], None] = lambda _: None,
    *,
    lock_timeout: float = 5.0,
) -> None:
    """Run a plan on an autocommit connection; `on_step` is told of each step before it runs.

    A step that fails leaves nothing of itself (an unfinished index may stay while a transaction holds its
    table; the error and the record name it, and the same call replaces it). What earlier steps did stands,
    and the publication's comment lists it: the same call finishes the work, a teardown undoes it.

    Raises:
        HeadraceError: the plan's first refusal; PRIVILEGE, DATABASE (also: no lock within `lock_timeout`
            seconds), CONNECTION.
    """
    for error in (*plan.refused, *plan.outstanding):
        raise error
    for step in plan.steps:
        on_step(step)
        try:
            _patiently(step, connection, lock_timeout)
        except psycopg.Error as error:
            raise _step_failed(step, error, connection, lock_timeout) from error


def _patiently(step: Step, connection: Connection, lock_timeout: float) -> None:
    """Run a step; a slot whose reader has just gone is free a moment later."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            _run(step, connection, lock_timeout)
        except psycopg.errors.ObjectInUse:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def _run(step: Step, connection: Connection, lock_timeout: float) -> None:
    limit = max(1, int(1000 * (_INDEX_WAIT_SECONDS if step.alone else lock_timeout)))
    if not step.alone:
        with connection.transaction():
            execute(connection, f"SET LOCAL lock_timeout = {limit}")
            execute(connection, "SET LOCAL statement_timeout = 0")
            execute(connection, "SET LOCAL synchronous_commit = on")  # what is built on it must not vanish
            for statement in step.statements:
                execute(connection, statement)
        return
    execute(connection, f"SET lock_timeout = {limit}")
    execute(connection, "SET statement_timeout = 0")
    try:
        for statement in step.statements:
            execute(connection, statement)
    except psycopg.Error as error:
        _clean_up(step, connection, error)
        raise
    finally:
        if not connection.broken:
            execute(connection, "RESET lock_timeout")
            execute(connection, "RESET statement_timeout")


def _clean_up(step: Step, connection: Connection, error: psycopg.Error) -> None:
    """Remove what is left; where an open transaction forbids it, note in `error` that it stays."""
    if not step.clean_up:
        return
    try:
        execute(connection, f"SET lock_timeout = {_CLEAN_UP_MILLISECONDS}")
        execute(connection, step.clean_up)
    except psycopg.Error:
        error.add_note(step.clean_up)


def _step_failed(
    step: Step, error: psycopg.Error, connection: Connection, lock_timeout: float
) -> HeadraceError:
    found = database_error(error, connection.info.dsn)
    statement = step.gist[0]
    left = "".join(f" An unfinished index stays: {note}." for note in getattr(error, "__notes__", ()))
    if error.sqlstate == "55P03":
        seconds = _INDEX_WAIT_SECONDS if step.alone else lock_timeout
        return HeadraceError(
            Kind.DATABASE,
            f"no lock within {seconds:g} s for: {statement}",
            "End the transactions that use the table (pg_stat_activity), and run the same command again."
            + left,
        )
    if found.kind is Kind.PRIVILEGE:
        return HeadraceError(
            Kind.PRIVILEGE,
            f"{found.cause}; needed for: {statement}",
            "Let the tables' owner run the SQL that `headrace setup` prints, or GRANT CREATE ON DATABASE and "
            "membership of the owning role.",
        )
    return HeadraceError(found.kind, f"{found.cause}, in: {statement}", (found.remedy + left).strip())
