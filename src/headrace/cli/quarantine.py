"""`headrace quarantine`: list, retry or forget the documents that the cluster refused."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.cli import terminal
from headrace.cli.context import CommandContext
from headrace.model.lsn import format_lsn
from headrace.model.units import quantity
from headrace.pipeline.quarantined_documents import (
    RetriedDocuments,
    by_index,
    forget_quarantined,
    list_quarantined,
    retry_quarantined,
)
from headrace.state import Quarantined
from headrace.tools.control_client import quarantine_path


def show_quarantine(context: CommandContext, index: str | None, id_: str | None) -> None:
    """Print every document in quarantine, or those of an index, or one; oldest first.

    Raises:
        HeadraceError: CONFIG, SINK_UNREACHABLE, SINK_BUSY, AUTHENTICATION; as for `ControlClient.ask`.
    """
    entries = _entries(context, index, id_)
    if context.as_json:
        terminal.data([entry.to_json() for entry in entries])
    elif entries:
        rows = [
            (entry.index, entry.id, entry.at, format_lsn(entry.position), entry.reason) for entry in entries
        ]
        terminal.table(("index", "id", "since", "position", "reason"), rows)
    else:
        terminal.say("nothing is in quarantine")


def drop_quarantined(context: CommandContext, index: str | None, id_: str | None) -> bool:
    """Forget entries after a question; the index is not changed.

    Raises:
        HeadraceError: as for `show_quarantine`; USAGE where the question cannot be answered.
    """
    entries = _entries(context, index, id_)
    if not entries:
        terminal.say("nothing is in quarantine")
    # Without its entry nothing builds a document again until its rows change: that is worth a question.
    is_agreed = not entries or context.agrees(f"Drop {_count(entries)} until they change again?")
    if entries and is_agreed:
        entries = _drop(context, index, id_, entries)
        terminal.done(f"dropped: {_count(entries)}")
    if context.as_json:
        terminal.data({"entries": [entry.to_json() for entry in entries], "done": is_agreed})
    return is_agreed


def _drop(
    context: CommandContext, index: str | None, id_: str | None, entries: list[Quarantined]
) -> list[Quarantined]:
    """Forget entries; return those that were in quarantine still."""
    client = context.open_control()
    if client is None:
        forget_quarantined(*context.open_endpoints(), entries)
        return entries
    result = client.follow(client.order(quarantine_path(index, "drop"), {"id": id_}))
    return [Quarantined.from_json(entry) for entry in result["dropped"]]


def rebuild_quarantined(context: CommandContext, index: str | None, id_: str | None) -> bool:
    """Build quarantined documents again, beside the running stream; return whether all are accepted now.

    Raises:
        HeadraceError: CONFIG, SCHEMA; as for `retry_quarantined` and `ControlClient.follow`.
    """
    retried = _retry(context, index, id_)
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


def _entries(context: CommandContext, index: str | None, id_: str | None) -> list[Quarantined]:
    client = context.open_control()
    if client is None:
        return list_quarantined(*context.open_endpoints(), index, id_)
    return [Quarantined.from_json(entry) for entry in client.ask("GET", quarantine_path(index, id_=id_))]


def _retry(context: CommandContext, index: str | None, id_: str | None) -> RetriedDocuments:
    client = context.open_control()
    if client is None:
        project = context.open_project()
        return retry_quarantined(project, project.resolve(), index, id_)
    result = client.follow(client.order(quarantine_path(index, "retry"), {"id": id_}))
    return RetriedDocuments(result["found"], [Quarantined.from_json(entry) for entry in result["left"]])


def _count(all_entries: Sequence[Quarantined]) -> str:
    counts = [f"{len(entries)} of {name}" for name, entries in by_index(all_entries).items()]
    return f"{', '.join(counts)} in quarantine"
