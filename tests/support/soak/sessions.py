"""Run the statements of a script in several sessions, none of which waits long for another."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from headrace.postgres.connection import Connection, connect
from support.soak.scripts import SESSIONS, Control, Statement

_EXPECTED = ("22", "23", "40", "0A000", "21000", "55006", "55P03", "57014", "27000", "09000")
"""What random statements run into: values, constraints, each other. Everything else is an error in them."""

_SETTINGS = b"SET lock_timeout = '40ms'; SET statement_timeout = '10s'; SET synchronous_commit = 'on'"


class Writers:
    """The sessions; a failure of a statement ends as its script says, and is counted.

    Attributes:
        done: how many statements did something, whether or not they were committed.
        refused: how many failed.
    """

    def __init__(self, url: str) -> None:
        self.done = 0
        self.refused = 0
        self._sessions = [_Session(url, self) for _ in range(SESSIONS)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for session in self._sessions:
            session.close()

    def take(self, step: Statement | Control, *, alone: bool = True) -> None:
        """One step.

        Args:
            step: what one session does.
            alone: whether the sessions take turns: then nobody else may hold a table as a whole. Without,
                each has a thread of its own.
        """
        if alone:
            for number, session in enumerate(self._sessions):
                if number != step.session:
                    session.let_go()
        session = self._sessions[step.session]
        if isinstance(step, Statement):
            session.run(step)
        else:
            session.control(step.what)

    def commit(self) -> None:
        """End every transaction that is open."""
        for session in self._sessions:
            session.control("COMMIT")

    def let_go(self, *numbers: int) -> None:
        """Before the pipeline's turn: whoever holds a table as a whole commits; of these sessions, or all."""
        for number in numbers or range(SESSIONS):
            self._sessions[number].let_go()


class _Session:
    def __init__(self, url: str, counted: Writers) -> None:
        self._connection: Connection = connect(url, application_name="headrace writer", autocommit=False)
        self._connection.execute(_SETTINGS)
        self._connection.commit()
        self._counted = counted
        self._savepoint = False
        self._exclusive = False

    def close(self) -> None:
        self._connection.close()

    def let_go(self) -> None:
        """Commit, where readers would have to wait."""
        if self._exclusive:
            self.control("COMMIT")

    def run(self, step: Statement) -> None:
        sql, guarded = step.sql, step.guarded
        if guarded:
            self._connection.execute(b"SAVEPOINT guard")
        try:
            self._connection.execute(sql.encode())
        except self._connection.DatabaseError as error:
            self._failed(error, sql)
            if guarded:
                self._connection.execute(b"ROLLBACK TO SAVEPOINT guard")
            else:
                self._back()
            return
        if guarded:
            self._connection.execute(b"RELEASE SAVEPOINT guard")
        self._counted.done += 1
        self._exclusive |= step.is_exclusive

    def _back(self) -> None:
        """To the last savepoint, else to the beginning."""
        if self._savepoint:
            self._connection.execute(b"ROLLBACK TO SAVEPOINT own")
        else:
            self.control("ROLLBACK")

    def control(self, what: str) -> None:
        if what in ("COMMIT", "ROLLBACK"):
            self._end(commit=what == "COMMIT")
        elif what == "SAVEPOINT":
            self._connection.execute(b"SAVEPOINT own")
            self._savepoint = True
        elif self._savepoint:
            self._connection.execute(f"{what} SAVEPOINT own".encode())
            self._savepoint = what == "ROLLBACK TO"

    def _end(self, *, commit: bool) -> None:
        self._savepoint = self._exclusive = False
        try:
            if commit:
                self._connection.commit()
            else:
                self._connection.rollback()
        except self._connection.DatabaseError as error:
            self._failed(error, "COMMIT")
            self._connection.rollback()

    def _failed(self, error: BaseException, sql: str) -> None:
        state = str(getattr(error, "sqlstate", None))
        if not state.startswith(_EXPECTED):
            raise AssertionError(f"{error}: {sql}") from error
        self._counted.refused += 1
