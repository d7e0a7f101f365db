"""A database and search clusters, as small as they can be and still lose and refuse like real ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from headrace.errors import HeadraceError, Kind
from headrace.model.lsn import Lsn
from headrace.postgres.ddl_plan import LockTimeoutError

ROWS = range(4)
TABLES = ("customers", "orders", "tags")
Content = tuple[int | str | None, ...]


@dataclass(slots=True)
class Slot:
    """A replication slot.

    Attributes:
        hollow: its log is gone although the server shows it as sound: only a query that reads it can tell.
    """

    confirmed: Lsn
    lost: str = ""
    reader: str = ""
    hollow: bool = False


@dataclass(slots=True)
class Change:
    """A row that the log names, at the end of its commit; it is sent where its table was published then."""

    lsn: Lsn
    table: str
    row: int
    sent: bool


@dataclass(slots=True)
class Server:
    """PostgreSQL: tables, a log of what was committed, one slot, and what DDL does without the log.

    Attributes:
        altered: by table, how often its rows were rewritten behind the log's back.
        emptied: by table, how often rows went with a partition.
        locked: tables that nobody may read, because somebody holds a lock.
        published: tables whose changes are sent to who reads the slot.
        foreign: tables of another owner, which this role may not publish.
        standby: the timeline of the standby that answers in place of the server; None: the server answers.
        unseen: commits that the log has and other sessions do not see yet, with the new value or None.
    """

    up: bool = True
    system: str = "1"
    timeline: int = 2
    lsn: Lsn = 100
    slot: Slot | None = None
    tables: dict[str, dict[int, int]] = field(default_factory=lambda: {name: {} for name in TABLES})
    written: dict[tuple[str, int], Lsn] = field(default_factory=dict)
    log: list[Change] = field(default_factory=list)
    altered: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TABLES, 0))
    emptied: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TABLES, 0))
    values: Iterator[int] = field(default_factory=itertools.count)
    unseen: list[tuple[Change, int | None]] = field(default_factory=list)
    over_budget: bool = False
    standby: int | None = None
    locked: set[str] = field(default_factory=set)
    published: set[str] = field(default_factory=set)
    foreign: set[str] = field(default_factory=set)

    def commit(self, table: str, row: int, *, delete: bool) -> None:
        """Write one row in a transaction of its own; `show` makes it visible."""
        self.lsn += 1
        change = Change(self.lsn, table, row, table in self.published)
        self.written[table, row] = self.lsn
        self.log.append(change)
        self.unseen.append((change, None if delete else next(self.values)))

    def show(self) -> None:
        """Make all commits visible: PostgreSQL does it in this order, some time after the log has them."""
        for change, value in self.unseen:
            if value is None:
                self.tables[change.table].pop(change.row, None)
            else:
                self.tables[change.table][change.row] = value
        self.unseen.clear()

    def rewrite(self, table: str) -> None:
        """ALTER TYPE … USING: every value is another one, and the log names none."""
        self.show()  # its lock waits for them
        self.lsn += 1
        self.altered[table] += 1
        for row in self.tables[table]:
            self.tables[table][row] = next(self.values)
            self.written[table, row] = self.lsn

    def lose_rows(self, table: str) -> None:
        """Detach a partition: some rows are gone, and the log names none."""
        self.show()  # its lock waits for them
        self.lsn += 1
        self.emptied[table] += 1
        for row in [row for row in self.tables[table] if row % 2]:
            del self.tables[table][row]
            self.written[table, row] = self.lsn

    def publish(self, tables: set[str]) -> None:
        """Send the changes of these tables from here on."""
        if self.locked & tables:
            raise LockTimeoutError(Kind.DATABASE, "others use the table")
        if self.foreign & tables:
            raise HeadraceError(Kind.PRIVILEGE, "must be owner of the table")
        self.show()  # its lock waits for them
        self.lsn += 1
        self.published |= tables

    def catalog(self) -> str:
        """What a fingerprint of the catalog says."""
        return ",".join(f"{name}:{self.altered[name]}:{self.emptied[name]}" for name in TABLES)

    @property
    def answers(self) -> bool:
        """Whether the server itself answers."""
        return self.up and self.standby is None

    def check_up(self) -> None:
        """Raise where the server does not answer."""
        if not self.answers:
            raise HeadraceError(Kind.CONNECTION, "the database does not answer, or is a standby")

    def check_unread(self) -> None:
        """Raise where another program reads the slot."""
        if self.slot is not None and self.slot.reader:
            raise HeadraceError(Kind.SLOT_IN_USE, "another program reads the slot")

    def check_free(self, tables: Iterable[str], id_: str) -> None:
        """Raise where a table that a generation reads is locked."""
        if self.locked.intersection(tables):
            raise HeadraceError(Kind.LOCKED, "a table is locked").concerning(units=[id_])


@dataclass(slots=True)
class Index:
    """A concrete index.

    Attributes:
        documents: by id, the version and the content; None is a tombstone.
    """

    owner: str
    definition: str
    uuid: str
    history: str
    documents: dict[int, tuple[Lsn, Content | None]] = field(default_factory=dict)

    def write(self, row: int, version: Lsn, content: Content | None) -> None:
        """Index or delete a document, unless a newer version is there."""
        if row not in self.documents or self.documents[row][0] <= version:
            self.documents[row] = (version, content)

    def live(self) -> dict[int, Content]:
        """What a search finds."""
        return {row: content for row, (_, content) in self.documents.items() if content is not None}


@dataclass(slots=True)
class Cluster:
    """OpenSearch.

    Attributes:
        refuses: logical indexes of which it refuses every document.
        fails_at: logical indexes at whose documents it fails, as an ingest processor with a bug.
        full: whether it refuses to create an index, and to lead readers to another one.
        unset: logical indexes whose settings it refuses; their documents it takes.
        keys_lost: whether the keys of documents that waited for it are gone, and nobody has forgotten that.
        taken: whether another process has had this sink, and left it before the next look.
    """

    up: bool = True
    indexes: dict[str, Index] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    refuses: set[str] = field(default_factory=set)
    fails_at: set[str] = field(default_factory=set)
    unset: set[str] = field(default_factory=set)
    full: bool = False
    taken: bool = False
    keys_lost: bool = False
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def check_up(self) -> None:
        """Raise where the cluster does not answer."""
        if not self.up:
            raise HeadraceError(Kind.SINK_UNREACHABLE, "the cluster does not answer")

    def check_changes(self) -> None:
        """Raise where it takes documents, if at all, and nothing else."""
        self.check_up()
        if self.full:
            raise HeadraceError(Kind.SINK_BUSY, "this cluster takes no new index and no new alias")

    def create(self, owner: str, definition: str) -> tuple[str, Index]:
        """Create an index under a new name."""
        self.check_changes()
        number = next(self.numbers)
        name = f"{owner}_{definition}_{number}"
        self.indexes[name] = Index(owner, definition, f"uuid{number}", f"history{number}")
        return name, self.indexes[name]

    def check_takes(self, name: str, id_: str) -> None:
        """Raise where the cluster refuses the documents of an index."""
        self.check_up()
        if name not in self.indexes:
            raise HeadraceError(Kind.SINK_BUSY, "no such index").concerning(units=[id_])
        if self.indexes[name].owner in self.fails_at:
            raise HeadraceError(Kind.LOCKED, "the cluster fails at a document").concerning(units=[id_])
        if self.indexes[name].owner in self.refuses:
            raise HeadraceError(Kind.SINK_REJECTED, "a document is refused").concerning(units=[id_])
