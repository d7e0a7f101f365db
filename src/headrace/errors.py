"""The errors that Headrace raises, with a stable code, a retry directive and a remedy each.

The whole package has one root error. One table gives every kind a retry directive and an exit code. The text
of an error is one line: the code, the cause, the remedy.
"""

from __future__ import annotations

import enum
import json
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, Self

from tenacity import RetryCallState, Retrying, retry_if_exception, sleep_using_event, wait_exponential_jitter


class Retry(enum.Enum):
    """Whether an action that failed can succeed later without an intervention."""

    NEVER = "never"
    BACK_OFF = "back_off"


@dataclass(frozen=True, slots=True)
class Policy:
    """How a kind of error is handled: `retry` by the pipeline, `exit_code` by the command line.

    Attributes:
        most_tries, most_seconds: whichever is reached first, without a success between, ends the tries.
    """

    retry: Retry
    exit_code: int
    most_tries: float = math.inf
    most_seconds: float = math.inf


class Kind(enum.Enum):
    """The kinds of errors; the value is the last part of the stable code, `[HEADRACE_<value>]`."""

    USAGE = "USAGE"
    CONFIG = "CONFIG"
    SCHEMA = "SCHEMA"
    BINDING = "BINDING"
    CONNECTION = "CONNECTION"
    SERVER_FAULT = "SERVER_FAULT"
    AUTHENTICATION = "AUTHENTICATION"
    PASSWORD_COMMAND = "PASSWORD_COMMAND"  # noqa: S105 - a code
    POOLER = "POOLER"
    PRIVILEGE = "PRIVILEGE"
    WAL_LEVEL = "WAL_LEVEL"
    SERVER_VERSION = "SERVER_VERSION"
    NO_FREE_SLOT = "NO_FREE_SLOT"
    SLOT_IN_USE = "SLOT_IN_USE"
    SLOT_LOST = "SLOT_LOST"
    SLOT_UNKNOWN = "SLOT_UNKNOWN"
    SLOT_WAIT = "SLOT_WAIT"
    STALLED = "STALLED"
    PUBLICATION = "PUBLICATION"
    REPLICA_IDENTITY = "REPLICA_IDENTITY"
    SCHEMA_CHANGED = "SCHEMA_CHANGED"
    PROTOCOL = "PROTOCOL"
    CONTINUITY = "CONTINUITY"
    OTHER_LOG = "OTHER_LOG"
    BEHIND = "BEHIND"
    DATABASE = "DATABASE"
    LOCKED = "LOCKED"
    VALUE = "VALUE"
    TRANSFORM = "TRANSFORM"
    SINK_UNREACHABLE = "SINK_UNREACHABLE"
    SINK_REJECTED = "SINK_REJECTED"
    SINK_BUSY = "SINK_BUSY"
    PORT_IN_USE = "PORT_IN_USE"
    DISK = "DISK"
    DOWNLOAD = "DOWNLOAD"
    DEPENDENCY = "DEPENDENCY"
    SPARK = "SPARK"
    WORKER_LOST = "WORKER_LOST"
    INTERNAL = "INTERNAL"


_STOP = Policy(Retry.NEVER, 1)
_WRONG = Policy(Retry.NEVER, 2)
_AGAIN = Policy(Retry.BACK_OFF, 1)

POLICIES: dict[Kind, Policy] = {
    # A kind that nobody has thought of is not retried: it would hide.
    **dict.fromkeys(Kind, _STOP),
    **dict.fromkeys((Kind.USAGE, Kind.CONFIG, Kind.SCHEMA, Kind.BINDING), _WRONG),
    **dict.fromkeys((Kind.CONNECTION, Kind.PASSWORD_COMMAND, Kind.SINK_UNREACHABLE, Kind.SINK_BUSY), _AGAIN),
    **dict.fromkeys((Kind.NO_FREE_SLOT, Kind.SLOT_IN_USE, Kind.SLOT_WAIT), _AGAIN),
    **dict.fromkeys((Kind.STALLED, Kind.WORKER_LOST), _AGAIN),
    Kind.SERVER_FAULT: Policy(Retry.BACK_OFF, 1, most_tries=100, most_seconds=3600),
}

BACKFILL_AGAIN = (
    "Run `headrace teardown`, then `headrace run`: searches use the present indexes until all are backfilled "
    "again."
)
"""The remedy where a deployment cannot continue from its slot."""
NEW_CHECKPOINT = "Start with a new slot and a new checkpoint, and backfill again what was read from here."
"""The remedy where a query cannot continue from its checkpoint."""
SAME_SLOT_AGAIN = "Start with a new checkpoint, and backfill again what was read from here."
"""The same, where the slot can still be read."""

_QUOTED = re.compile("[\"'`\u00ab\u00bb\u2018-\u201f\u2039\u203a\u300c]")
_LINE = re.compile(
    r"\[HEADRACE_(?P<kind>[A-Z_]+)\] (?P<cause>[^\n]*?)(?:\. (?P<remedy>[A-Z`][^\n]*))?\s*(?:\n|$)"
)
_TRANSPORTED = re.compile(r"^[\s|]*headrace concerns: (?P<fields>\{[^\n]*\})", re.MULTILINE)


class HeadraceError(Exception):
    """The root of all errors that Headrace raises on purpose.

    It is picklable. From a Spark worker the driver gets only its text, inside a Spark exception; `find` reads
    it back, with what `for_transport` adds to it.

    Args:
        kind: the kind of error.
        cause: one sentence without a trailing full stop. It quotes no values of rows, because logs and
            `/status` show it.
        remedy: what the operator should do, one sentence; empty where the cause is enough.
        detail: the cause with values of rows, where that says more; for readers who may see rows. It is not
            part of the error's text and stays in the process.

    Attributes:
        tables: the tables that it concerns, as `str(TableName)`; of a partition its topmost table.
        units: the units that it concerns: generations, by their names. Without tables and units it may
            concern all.
        sql: the statements that mend it, each ready to run; of a remedy that is no SQL there are none.
        sqlstate: by which the database has refused a statement; else empty.
    """

    def __init__(self, kind: Kind, cause: str, remedy: str = "", detail: str = "") -> None:
        super().__init__(kind, cause, remedy, detail)
        self.kind = kind
        self.cause = cause
        self.remedy = remedy
        self.detail = detail
        self.tables: frozenset[str] = frozenset()
        self.units: frozenset[str] = frozenset()
        self.sql: tuple[str, ...] = ()
        self.sqlstate = ""

    def concerning(self, *, tables: Iterable[object] = (), units: Iterable[str] = ()) -> Self:
        """Note further tables and units that the error concerns; return the error."""
        self.tables |= {str(table) for table in tables}
        self.units |= set(units)
        return self

    def mended_by(self, statements: Iterable[str]) -> Self:
        """Note the statements that mend it, each ready to run; return the error."""
        self.sql = tuple(statements)
        return self

    def for_transport(self) -> str:
        """Return the text from which `find` reads the error and what it concerns, also in another process."""
        return "\n".join(filter(None, (str(self), self.transport_line())))

    def transport_line(self) -> str:
        """Return the line of `for_transport` with what the text does not say; empty where it says all.

        That is what the error concerns, and the cause where the text alone does not show where it ends.
        """
        text = str(self)
        is_clear = "\n" in text or _parts(text) == (self.kind.value, self.cause, self.remedy)
        if is_clear and not self.tables and not self.units:
            return ""
        return _transport_line(self.tables, self.units, "" if is_clear else self.cause)

    @property
    def code(self) -> str:
        """The stable code, for example `HEADRACE_SLOT_LOST`."""
        return f"HEADRACE_{self.kind.value}"

    @property
    def retry(self) -> Retry:
        """Whether the pipeline may try the same action again."""
        return POLICIES[self.kind].retry

    @property
    def exit_code(self) -> int:
        """The exit code: 1 failed, 2 wrong usage or configuration."""
        return POLICIES[self.kind].exit_code

    @property
    def full_cause(self) -> str:
        """The most detailed cause, for readers who may see rows."""
        return self.detail or self.cause

    def __str__(self) -> str:
        text = f"[{self.code}] {self.cause}"
        return f"{text}. {self.remedy}" if self.remedy else text

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.kind, self.cause, self.remedy, self.detail)

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        """Return what `__reduce__` of the class returns, with what the error concerns as its state."""
        concerns = {"tables": self.tables, "units": self.units, "sql": self.sql, "sqlstate": self.sqlstate}
        return *self.__reduce__()[:2], concerns

    @classmethod
    def find(cls, text: str) -> Self | None:
        """Read the last error whose line is in `text` (a Spark stack trace); None where there is none.

        Where `for_transport` says nothing else, its cause is the first sentence, and its remedy what follows.
        """
        lines = [match for match in _LINE.finditer(text) if match["kind"] in Kind.__members__]
        if not lines:
            return None
        kind, cause, remedy = _parts(lines[-1].group())
        whole, known = f"{cause}. {remedy}" if remedy else cause, _transported(text).get("cause", "")
        if known and whole.startswith(known):
            cause, remedy = known, whole.removeprefix(known).removeprefix(". ")
        return cls(Kind[kind], cause, remedy).concerning(**find_concerns(text))


def _parts(line: str) -> tuple[str, str, str]:
    """Return the kind, the cause and the remedy of an error's line, as far as the text alone tells."""
    match = _LINE.match(line)
    return ("", line, "") if match is None else (match["kind"], match["cause"], match["remedy"] or "")


def _transport_line(tables: Iterable[str], units: Iterable[str], cause: str = "") -> str:
    fields: dict[str, Any] = {"tables": sorted(tables), "units": sorted(units)}
    return f"headrace concerns: {json.dumps(fields | ({'cause': cause} if cause else {}))}"


def _transported(text: str) -> dict[str, Any]:
    lines = _TRANSPORTED.findall(text)
    try:
        return dict(json.loads(lines[-1])) if lines else {}
    except ValueError:  # a foreign exception, with a line of its own like this
        return {}


def find_concerns(text: str) -> dict[str, list[str]]:
    """Return the last tables and units that a text of `for_transport` or of a note names, by these words."""
    return {name: value for name, value in _transported(text).items() if name in ("tables", "units")}


@contextmanager
def failures_of(unit: str) -> Iterator[None]:
    """Note in what is raised that it concerns this unit, so that only this one is given up."""
    try:
        yield
    except HeadraceError as error:
        error.concerning(units=[unit])
        raise
    except Exception as error:
        error.add_note(_transport_line([], [unit]))  # a stack trace shows it
        raise


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a file: a line, or a column of it; both count from 1.

    Attributes:
        line: 0 where only the whole is known.
        text: the line itself, for messages; empty where it may hold a secret.
    """

    file: Path
    line: int
    column: int | None = None
    text: str = ""

    def __str__(self) -> str:
        if not self.line:
            return str(self.file)
        return f"{self.file}:{self.line}" + (f":{self.column}" if self.column is not None else "")


class LocatedError(HeadraceError):
    """An error at a place in a file; its text is the place, the problem, the line itself and the remedy."""

    def __init__(self, kind: Kind, place: Place, problem: str, remedy: str = "") -> None:
        line = place.text.strip()
        super().__init__(kind, f"{place}: {problem}" + (f", in `{line}`" if line else ""), remedy)
        self.place = place
        self.problem = problem

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.kind, self.place, self.problem, self.remedy)


class ErrorGroup(HeadraceError):  # noqa: N818 -- it holds several
    """Several errors at once, for example all mistakes of a file; its text has one line for each."""

    def __init__(self, errors: Sequence[HeadraceError]) -> None:
        self.errors = tuple(errors)
        first, *others = self.errors
        more = f" (and {len(others)} more)" if others else ""
        super().__init__(first.kind, first.cause + more, first.remedy)

    @property
    def exit_code(self) -> int:
        """The highest exit code of the errors: 2 where one of them is a mistake in the files."""
        return max(error.exit_code for error in self.errors)

    def __str__(self) -> str:
        return "\n".join(str(error) for error in self.errors)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.errors,)


def as_clause(sentence: str) -> str:
    """Return a sentence as it goes on after a colon: with a small first letter."""
    return f"{sentence[0].lower()}{sentence[1:]}"


def in_one_line(errors: Iterable[HeadraceError]) -> str:
    """Join the texts of errors to sentences of one line."""
    return " ".join(text if text.endswith(".") else f"{text}." for text in map(str, errors))


def without_values(text: str) -> str:
    """Cut a foreign error's text at its first quotation mark: a quoted value may be of a row."""
    quote = _QUOTED.search(text)
    return text if quote is None else f"{text[: quote.start()].rstrip(' :([{=,')} …".lstrip()


def unexpected(
    what: str, error: BaseException, kind: Kind = Kind.INTERNAL, remedy: str = ""
) -> HeadraceError:
    """Return the error for a foreign exception, without the values that its text may quote.

    An error of Headrace's own is returned as it is.

    Args:
        what: what failed, without a full stop.
        error: the exception.
        kind: the kind of the new error.
        remedy: its remedy.
    """
    if isinstance(error, HeadraceError):
        return error
    message = without_values(" ".join(str(error).split()))
    cause = f"{what}: {type(error).__name__}" + (f": {message}" if message else "")
    concerns = find_concerns("\n".join(getattr(error, "__notes__", ())))
    return HeadraceError(kind, cause, remedy, f"{what}: {error!r}").concerning(**concerns)


def as_locked(error: HeadraceError, units: Iterable[str]) -> HeadraceError:
    """Return the error as one (LOCKED) behind which these units wait, and no others."""
    return HeadraceError(Kind.LOCKED, error.cause, error.remedy, error.detail).concerning(units=units)


class Refusals:
    """Measures how long a login is refused that was taken before.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first = self._last = -math.inf

    def forget(self) -> None:
        """Begin to measure again: the login was taken."""
        self._last = -math.inf

    def note(self, apart: float) -> float:
        """Note a refusal; return how long (seconds) they have lasted.

        One that comes more than `apart` seconds after the last one begins another series.
        """
        now = self._clock()
        if now - self._last > apart:
            self._first = now
        self._last = now
        return now - self._first


class Patience:
    """Counts the tries of an action, and ends those that a policy limits.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tries = 0
        self._since: float | None = None

    def forget(self) -> None:
        """Begin to count again: the action has succeeded, or made progress."""
        self._tries, self._since = 0, None

    def judge(self, error: HeadraceError) -> HeadraceError:
        """Return the error of a try, or where such errors have lasted too long, one that ends the tries.

        Errors without a limit, as a lost connection, are not counted. The time begins again after them: an
        outage of hours says nothing of a fault.
        """
        policy = POLICIES[error.kind]
        if math.inf in (policy.most_tries, policy.most_seconds):
            self._since = None
            return error
        now = self._clock()
        self._since = now if self._since is None else self._since
        self._tries += 1
        lasted = now - self._since
        if self._tries < policy.most_tries and lasted < policy.most_seconds:
            return error
        return HeadraceError(
            Kind.DATABASE,
            f"{error.cause}; it happened {self._tries} times in a row within {lasted / 60:.0f} min",
            "It does not pass by itself: read the server's log, and repair the server.",
        ).concerning(tables=error.tables, units=error.units)


def retrying(first: float = 0.05, longest: float = 10.0, *, ending: Event | None = None) -> Retrying:
    """Return the attempts of an action that is tried again after each retryable error, see `Patience`.

    Args:
        first, longest: the first and the longest pause (seconds).
        ending: once it is set there are no more pauses, and the next failure is raised.
    """
    ended, patience = ending or Event(), Patience()
    last: HeadraceError | None = None

    def is_retryable(error: BaseException) -> bool:
        return isinstance(error, HeadraceError) and error.retry is Retry.BACK_OFF and not ended.is_set()

    def has_lasted(state: RetryCallState) -> bool:
        nonlocal last
        last = patience.judge(error_of(state))
        return last.retry is Retry.NEVER

    def give_up(state: RetryCallState) -> None:
        assert last is not None
        raise last from error_of(state)

    return Retrying(
        retry=retry_if_exception(is_retryable),
        stop=has_lasted,
        retry_error_callback=give_up,
        wait=wait_exponential_jitter(multiplier=first, max=longest, jitter=first),
        sleep=sleep_using_event(ended),
    )


def error_of(state: RetryCallState) -> HeadraceError:
    """Return the retryable error that a try of `Retrying` ended with."""
    assert state.outcome is not None
    error = state.outcome.exception()
    assert isinstance(error, HeadraceError)
    return error
