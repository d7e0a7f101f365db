"""Read the messages of the server's plugin, before anything of ours turns them into rows."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Self

from headrace.model.lsn import Lsn
from headrace.pgoutput.frames import Frames, Keepalive, encode_status, split_frames
from headrace.pgoutput.messages import Relation, Truncate
from headrace.postgres.replication import ReplicationConnection
from integration.capture.following import Source
from reference.pgoutput import Commit, Delete, Insert, Message, Row, Update, decode_message

Text = tuple[object, ...]
Told = tuple[str, str, Text | None, Text | None]
"""(kind, table, old, new): I, U (no old row), UK and DK (old key), UO and DO (old row)."""


def peek(source: Source, publication: str | None = None, **options: object) -> list[Message]:
    """Every message from the slot's position to the end of the log; the slot stays where it is."""
    upto, count = options.get("upto"), options.get("count")
    found = source.query(
        "SELECT data FROM pg_logical_slot_peek_binary_changes($1, $2::pg_lsn, $3::int, "
        "'proto_version', '1', 'publication_names', $4)",
        source.slot,
        upto,
        count,
        publication or source.publication,
    )
    return [decode_message(bytes(data)) for (data,) in found]


def rows(messages: Iterable[Message]) -> list[Told]:
    """The changes of rows among the messages; texts instead of bytes."""
    names: dict[int, str] = {}
    told: list[Told] = []
    for message in messages:
        if isinstance(message, Relation):
            names[message.oid] = message.table.name
        elif isinstance(message, Insert):
            told.append(("I", names[message.relation], None, _text(message.new)))
        elif isinstance(message, Update):
            kind = "U" if message.old is None else "UK" if message.old_is_key else "UO"
            old = None if message.old is None else _text(message.old)
            told.append((kind, names[message.relation], old, _text(message.new)))
        elif isinstance(message, Delete):
            kind = "DK" if message.old_is_key else "DO"
            told.append((kind, names[message.relation], _text(message.old), None))
    return told


def told(source: Source) -> list[Told]:
    """The changes of rows between the slot's position and the end of the log."""
    return rows(peek(source))


def truncates(messages: Iterable[Message]) -> list[tuple[set[str], bool, bool]]:
    """(tables, cascade, restart identity) of each message of a TRUNCATE."""
    names: dict[int, str] = {}
    found = []
    for message in messages:
        if isinstance(message, Relation):
            names[message.oid] = message.table.name
        elif isinstance(message, Truncate):
            tables = {names[relation] for relation in message.relations}
            found.append((tables, message.cascade, message.restart_identity))
    return found


def commits(messages: Iterable[Message]) -> list[Commit]:
    return [message for message in messages if isinstance(message, Commit)]


class Wire:
    """The slot's stream as it arrives on a replication connection; a context manager."""

    def __init__(self, source: Source, lsn: Lsn = 0, publications: Sequence[str] | None = None) -> None:
        self._connection = ReplicationConnection(source.url)
        self._connection.start(source.slot, lsn, publications or (source.publication,))
        self.keepalives: list[Keepalive] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    @property
    def pid(self) -> int:
        return self._connection.pid

    def read(self, seconds: float, commits: int = 1_000_000) -> list[Message]:
        """What arrives within `seconds`, or until so many transactions are whole."""
        found: list[Message] = []
        deadline = time.monotonic() + seconds
        while commits > 0 and (left := deadline - time.monotonic()) > 0:
            frames = Frames()
            if not self._connection.receive(frames, 1):
                self._connection.wait(left)
                continue
            batch, _, keepalives = split_frames(frames)
            self.keepalives += [keepalive for _, keepalive in keepalives]
            messages = [decode_message(batch.payload(index)) for index in range(len(batch))]
            commits -= sum(isinstance(message, Commit) for message in messages)
            found += messages
        return found

    def confirm(self, lsn: Lsn) -> None:
        status = encode_status(received=lsn, durable=lsn, now_us=time.time_ns() // 1000)
        self._connection.put_copy_data(status)


def _text(row: Row) -> Text:
    return tuple(value.decode() if isinstance(value, bytes) else value for value in row)
