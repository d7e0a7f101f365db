"""`headrace slots` and `headrace lag`: list and drop slots, and show how far behind they are."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager

from headrace.cli import terminal
from headrace.cli.context import CommandContext
from headrace.config.load import load_deployment
from headrace.errors import BACKFILL_AGAIN, HeadraceError, Kind
from headrace.model.lsn import format_lsn
from headrace.model.units import duration, size
from headrace.postgres.connection import Connection, connect
from headrace.postgres.deployment_database import database_of
from headrace.postgres.locks import advisory_lock
from headrace.postgres.slot import SlotFacts, check_slot_name, drop_slot, list_slots, read_slot, slot_in_use


def show_slots(context: CommandContext, url: str | None = None) -> None:
    """Print every slot of a database, by default the deployment's.

    Raises:
        HeadraceError: CONFIG, CONNECTION, AUTHENTICATION, DATABASE.
    """
    with _connect(context, _without_file(context, url)) as (connection, own):
        found = list_slots(connection)
    if context.as_json:
        terminal.data([slot_data(facts, own) for facts in found])
    elif not found:
        terminal.say("this database has no slots")
    else:
        head = ("slot", "ours", "plugin", "read by", "behind", "late", "keeps", "until lost", "state")
        terminal.table(head, [_row(facts, own) for facts in found], right=(4, 5, 6, 7))


def drop_named(context: CommandContext, name: str | None, url: str | None = None) -> bool:
    """Drop one slot of a database, by default the deployment's, after a question.

    Raises:
        HeadraceError: USAGE without a name; SLOT_UNKNOWN; SLOT_IN_USE with the name of the reader or the
            Headrace; PRIVILEGE, CONFIG, CONNECTION, DATABASE.
    """
    if name is None:
        remedy = "Write `headrace slots drop NAME`; `headrace slots` lists them."
        raise HeadraceError(Kind.USAGE, "no slot is named", remedy)
    # A run that starts or waits holds this lock while nothing reads its slot.
    with _connect(context, _without_file(context, url)) as (connection, own), advisory_lock(connection, name):
        facts = _find_slot(connection, name)
        if facts.reader is not None:
            raise slot_in_use(facts)
        terminal.say(f"{facts.name}: {_meaning(facts, own)}")
        is_agreed = context.agrees(f"Drop the slot {facts.name}?")
        if is_agreed:
            drop_slot(connection, facts.name)
    if context.as_json:
        terminal.data({"slot": facts.name, "retained_bytes": facts.retained, "done": is_agreed})
    if is_agreed:
        terminal.done(f"dropped; the server may remove {size(facts.retained)} of log at its next checkpoint")
    return is_agreed


def show_lag(context: CommandContext) -> None:
    """Print how far the deployment's slot is behind.

    Raises:
        HeadraceError: SLOT_UNKNOWN: there is no slot, so there is no lag. SLOT_LOST, CONFIG, CONNECTION,
            AUTHENTICATION, DATABASE.
    """
    with _connect(context) as (connection, own):
        name = next(iter(own))
        facts = read_slot(connection, name)
        if context.as_json:
            # A program finds the same keys where there is no slot; the error on the other output says why.
            found = {"slot": name, **dict.fromkeys(_KEYS)} if facts is None else slot_data(facts, own)
            terminal.data({key: found[key] for key in ("slot", *_KEYS)})
        facts = facts or _find_slot(connection, name)
    if facts.lost:
        raise HeadraceError(Kind.SLOT_LOST, f"the slot {name!r} is lost: {facts.why_lost}", BACKFILL_AGAIN)
    if not context.as_json:
        by = f"read by {facts.reader}" if facts.reader else "nobody reads it"
        seconds = seconds_behind(facts)
        late = "" if seconds is None else f", {duration(seconds)}"
        keeps = f"the server keeps {size(facts.retained)} of log for it"
        terminal.answer(f"{name}: {size(facts.lag)} behind{late}; {keeps}; {by}")


_WITHOUT_DOCUMENTS = "the documents must be backfilled again"
_WITHOUT_LAKE = "the lake's tables must be read again (`headrace mirror --reload`)"
_KEYS = ("bytes", "seconds", "retained_bytes", "confirmed", "current", "wal_status", "safe_bytes", "reader")


def slot_data(facts: SlotFacts, own: Container[str]) -> dict[str, object]:
    """Return a slot as JSON data: sizes in bytes, times in seconds, null where a value is unknown."""
    return {
        "slot": facts.name,
        "ours": facts.name in own,
        "plugin": facts.plugin,
        "temporary": facts.temporary,
        "failover": facts.failover,
        "reader": facts.reader,
        "bytes": None if facts.lost else facts.lag,
        "seconds": seconds_behind(facts),
        "retained_bytes": facts.retained,
        "safe_bytes": facts.safe_wal_size,
        "wal_status": facts.wal_status,
        "lost": facts.why_lost if facts.lost else None,
        "confirmed": None if facts.confirmed_flush is None else format_lsn(facts.confirmed_flush),
        "current": format_lsn(facts.current),
    }


def seconds_behind(facts: SlotFacts) -> float | None:
    """Return how many seconds the slot is behind, at least 0; None where it is unknown.

    With a reader it is the time that the server measures between flushing the log and the reader's
    confirmation. Without a reader it is the time since the last one left (PostgreSQL 17 and later): changes
    since then are at least as late.
    """
    if facts.lost or facts.confirmed_flush is None:
        return None
    if facts.lag == 0:
        return 0.0
    if facts.reader is not None:
        return None if facts.reader_lag is None else max(0.0, facts.reader_lag)
    return facts.inactive_seconds


def _without_file(context: CommandContext, url: str | None) -> str | None:
    """Return the database that is used in place of a deployment file's; None: the file's."""
    return url if url or context.config.exists() else context.environ.get("DATABASE_URL")


@contextmanager
def _connect(
    context: CommandContext, url: str | None = None
) -> Iterator[tuple[Connection, Mapping[str, str]]]:
    """Connect to `url`, else to the deployment's database; yield the connection and the deployment's slots.

    The slots come with what must be done without them: first that of the documents, where there are any. With
    a `url` no deployment file is read: the one slot is the option's, if there is one.
    """
    if context.slot is not None:
        check_slot_name(context.slot)
    own = {} if context.slot is None else {context.slot: _WITHOUT_DOCUMENTS}
    if url is None:
        deployment = load_deployment(context.config, context.environ)
        mirror = deployment.mirror
        if not own and (mirror is None or deployment.indexes):
            own[deployment.source.slot] = _WITHOUT_DOCUMENTS
        if mirror is not None:
            own.setdefault(mirror.slot, _WITHOUT_LAKE)
        url = database_of(deployment, next(iter(own)))
    with connect(url, application_name="headrace slots") as connection:
        yield connection, own


def _find_slot(connection: Connection, name: str) -> SlotFacts:
    names = {facts.name: facts for facts in list_slots(connection)}
    if name in names:
        return names[name]
    others = f"its slots: {', '.join(names)}" if names else "it has no slots"
    cause = f"the database {connection.info.dbname!r} has no replication slot {name!r} ({others})"
    remedy = "Correct the name; `headrace run` creates the deployment's own."
    raise HeadraceError(Kind.SLOT_UNKNOWN, cause, remedy)


def _meaning(facts: SlotFacts, own: Mapping[str, str]) -> str:
    """Describe what dropping the slot would mean."""
    keeps = f"keeps {size(facts.retained)} of log"
    if facts.name in own:
        return f"{keeps}; it is this deployment's: without it {own[facts.name]}"
    foreign = "it is not this deployment's: " if own else ""
    return f"{keeps}; {foreign}the program that reads it loses the changes in that log"


def _left(facts: SlotFacts) -> str:
    """Return how much log may yet be written before the slot is lost; empty where it is."""
    if facts.lost:
        return ""
    return "no limit" if facts.safe_wal_size is None else size(max(0, facts.safe_wal_size))


def _row(facts: SlotFacts, own: Container[str]) -> tuple[str, ...]:
    late = seconds_behind(facts)
    return (
        facts.name,
        "yes" if facts.name in own else "",
        facts.plugin or facts.kind,
        facts.reader or "nobody",
        "" if facts.lost else size(facts.lag),
        "" if late is None else duration(late),
        size(facts.retained),
        _left(facts),
        ", ".join(_state(facts)),
    )


def _state(facts: SlotFacts) -> Iterator[str]:
    yield f"lost: {facts.why_lost}" if facts.lost else facts.wal_status or ""
    kinds = {"temporary": facts.temporary, "failover": facts.failover, "standby's copy": facts.synced}
    yield from (name for name, holds in kinds.items() if holds)
