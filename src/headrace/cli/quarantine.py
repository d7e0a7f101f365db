"""`headrace quarantine`: list, retry or forget the documents that the cluster refused."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.cli import terminal
from headrace.cli.context import CommandContext
from headrace.config.load import load_deployment
from headrace.errors import HeadraceError, Kind
from headrace.model.lsn import format_lsn
from headrace.model.suggestion import meant
from headrace.model.units import quantity
from headrace.state import Quarantined
from headrace.tools.quarantined_documents import (
    by_index,
    forget_quarantined,
    list_quarantined,
    retry_quarantined,
)


def show_quarantine(context: CommandContext, index: str | None, id_: str | None, sink: str | None) -> None:
    """Print every document in quarantine, or those of an index, or one; oldest first.

    Raises:
        HeadraceError: USAGE for an index that is unknown; CONFIG, SINK_UNREACHABLE, SINK_BUSY,
            AUTHENTICATION.
    """
    entries = _list(context, index, id_, sink)
    if context.as_json:
        terminal.data([entry.to_json() for entry in entries])
    elif entries:
        rows = [
            (entry.index, entry.id, entry.at, format_lsn(entry.position), entry.reason) for entry in entries
        ]
        terminal.table(("index", "id", "since", "position", "reason"), rows)
    else:
        terminal.say("nothing is in quarantine")


def drop_quarantined(context: CommandContext, index: str | None, id_: str | None, sink: str | None) -> bool:
    """Forget entries after a question; the index is not changed.

    Raises:
        HeadraceError: as for `show_quarantine`; USAGE where the question cannot be answered.
    """
    entries = _list(context, index, id_, sink)
    if not entries:
        terminal.say("nothing is in quarantine")
    # Without its entry nothing builds a document again until its rows change: that is worth a question.
    is_agreed = not entries or context.agrees(f"Drop {_count(entries)} until they change again?")
    if entries and is_agreed:
        forget_quarantined(*context.open_endpoints(sink), entries)
        terminal.done(f"dropped: {_count(entries)}")
    if context.as_json:
        terminal.data({"entries": [entry.to_json() for entry in entries], "done": is_agreed})
    return is_agreed


def rebuild_quarantined(
    context: CommandContext, index: str | None, id_: str | None, sink: str | None
) -> bool:
    """Build quarantined documents again, beside the running stream; return whether all are accepted now.

    Raises:
        HeadraceError: CONFIG, SCHEMA; as for `retry_quarantined`.
    """
    project = context.open_project(index)
    retried = retry_quarantined(project, index, id_, sink=sink)
    if not retried.found:
        _check_index(context, index, sink)
    if context.as_json:
        terminal.data({"found": retried.found, "left": [entry.to_json() for entry in retried.left]})
    if not retried.found:
        terminal.say("nothing is in quarantine")
        return True
    right = retried.found - len(retried.left)
    terminal.done(f"built again, and accepted: {right:,} of {quantity(retried.found, 'document')}")
    for entry in retried.left:
        terminal.warn(f"{entry.index} {entry.id}: {entry.reason}")
    return not retried.left


def _list(context: CommandContext, index: str | None, id_: str | None, sink: str | None) -> list[Quarantined]:
    entries = list_quarantined(*context.open_endpoints(sink), index, id_)
    if not entries:
        _check_index(context, index, sink)
    return entries


def _check_index(context: CommandContext, index: str | None, sink: str | None) -> None:
    """Refuse an index that the deployment does not name, and of which nothing is in quarantine.

    Raises:
        HeadraceError: USAGE.
    """
    if index is None:
        return
    entries = list_quarantined(*context.open_endpoints(sink))
    known = {entry.name for entry in load_deployment(context.config, context.environ).indexes}
    known |= {entry.index for entry in entries}
    if index not in known:
        raise HeadraceError(Kind.USAGE, f"the deployment has no index {index!r}", meant(index, known))


def _count(all_entries: Sequence[Quarantined]) -> str:
    counts = [f"{len(entries)} of {name}" for name, entries in by_index(all_entries).items()]
    return f"{', '.join(counts)} in quarantine"
