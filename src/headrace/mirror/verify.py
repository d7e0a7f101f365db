"""Compare the lake's tables with the database's, and read those again that differ.

The mirror may run meanwhile. Where a table's digests differ, hashes of its rows are compared: those of the
database in a snapshot, and those of the lake once it has all that the snapshot shows. A row that changes
meanwhile differs in another way at the next look; one that differs in the same way at each of three looks is
wrong.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from headrace.errors import HeadraceError, Kind
from headrace.mirror import digests
from headrace.mirror.choosing import TableChooser
from headrace.mirror.columns import is_followed
from headrace.mirror.endpoints import MirrorEndpoints
from headrace.mirror.lake import opened, reaching
from headrace.mirror.load_units import RewrittenError, read_rows, reading_rows
from headrace.mirror.loading import LakeLoader
from headrace.mirror.net_changes import Key
from headrace.mirror.noting import LakeNotes
from headrace.mirror.observing import decide_each
from headrace.mirror.positions import TablePosition
from headrace.mirror.python_values import shown_value
from headrace.mirror.source_log import check_log, read_sent
from headrace.mirror.tables import LOCK_SECONDS, MirroredTable
from headrace.mirror.units import Action, Wait
from headrace.mirror.waiting import concerns_table
from headrace.model.lsn import Lsn
from headrace.model.names import CtidRange, TableName
from headrace.postgres.connection import connect, execute
from headrace.postgres.copying import RowSession
from headrace.postgres.locks import SlotLock, find_holder
from headrace.postgres.session import ReadSession
from headrace.snapshot.exporting import positioned_snapshot
from headrace.snapshot.planning import plan_tables

_LOOKS = 3
_WAIT_SECONDS = 60.0
_POLL_SECONDS = 0.5
_NO_KEYS = np.empty(0, np.uint64)
_WAYS = ("missing", "surplus", "different")  # as `RowDifferences.kinds` counts them
_MOST_KEYS = 1000
"""So many keys of rows that are wrong in one way are told: without a key each is all that a row shows."""

_ACTIVE = """
SELECT active FROM pg_replication_slots WHERE slot_name = $1::text AND database = current_database()
"""
# Peeked, so that the slot stays where it is; begins, commits and relations change no row.
_READ_UP = """
SELECT NOT EXISTS (
    SELECT FROM pg_logical_slot_peek_binary_changes(
        slot_name, NULL, 10000, 'proto_version', '1', 'publication_names', $2::text) AS message
    WHERE get_byte(message.data, 0) IN (ascii('I'), ascii('U'), ascii('D'), ascii('T')))
FROM pg_replication_slots WHERE slot_name = $1::text AND database = current_database()
"""


class AlteredError(HeadraceError):
    """The lake's table does not have the columns of the database's yet."""


@dataclass(slots=True)
class TableComparison:
    """What a comparison of one table found.

    Attributes:
        table: the table.
        rows: how many rows the database has.
        compared: whether the table can be compared; one of changes cannot.
        missing, surplus, different: keys of rows that the lake lacks, has too many, or has with other values;
            the first thousand of each.
        counts: how many rows are wrong in each of these ways.
        changing: how many rows changed from each look to the next, so that they could not be compared.
        undecided: how many rows differ, and may be on their way: the mirror does not go on.
        repaired: how many of them are right by now.
        read_again: whether a repair has read the table again.
        waits_for: why the mirror does not write the table for now, which is not compared then.
    """

    table: TableName
    rows: int = 0
    compared: bool = True
    missing: list[Key] = field(default_factory=list)
    surplus: list[Key] = field(default_factory=list)
    different: list[Key] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_WAYS, 0))
    changing: int = 0
    undecided: int = 0
    repaired: int = 0
    read_again: bool = False
    waits_for: str | None = None

    @property
    def wrong(self) -> int:
        """How many rows are not as the database has them."""
        return sum(self.counts.values())

    @property
    def is_right(self) -> bool:
        """Whether every row is as the database has it, by now."""
        return self.wrong == self.repaired and not self.undecided and self.waits_for is None

    def tell(self, table: MirroredTable, wrong: digests.RowDifferences, keys: Mapping[int, Key]) -> None:
        """Say which rows are wrong, by keys as people read them, in order.

        Args:
            table: the table.
            wrong: these rows.
            keys: the keys of the first, by hash.
        """
        types = [table.schema.field(name).type for name in table.key]
        for kind, side in enumerate((self.missing, self.surplus, self.different)):
            codes = wrong.keys[wrong.kinds == kind]
            self.counts[_WAYS[kind]] = len(codes)
            found = sorted((keys[code] for code in codes.tolist() if code in keys), key=repr)
            side.extend(tuple(map(shown_value, key, types)) if types else key for key in found)


@dataclass(slots=True)
class LakeComparer:
    """Compares a lake with its database.

    Attributes:
        ends: the database and the lake.
        notes: up to where its tables are complete.
        loader: reads tables again.
        chooser: says which tables the lake should have.
    """

    ends: MirrorEndpoints
    notes: LakeNotes
    loader: LakeLoader
    chooser: TableChooser
    _keeps_away: bool = False

    def compare(self, names: Sequence[TableName] = (), *, repair: bool = False) -> Iterator[TableComparison]:
        """Compare tables, all where none are named, and yield what each comparison found.

        Args:
            names: the tables.
            repair: read tables again that differ; the mirror must not run.

        Raises:
            HeadraceError: SLOT_IN_USE, to repair while the mirror runs; BINDING, no such table is mirrored;
                as for `check_log`; what the database or the lake refuse.
        """
        with contextlib.ExitStack() as held, reaching(self.ends.lake):
            if repair:
                self._keep_mirrors_away(held)
            positions = self.notes.table.read()
            # After a gap no look would tell what the lake lacks from what is on its way.
            check_log(self.ends, positions)
            noted = positions.tables
            # One that was taken out of the file is left as it is; the next start forgets it.
            known = {name: position for name, position in noted.items() if self.ends.selection.matches(name)}
            unknown = [name for name in names if name not in known]
            if unknown:
                raise HeadraceError(
                    Kind.BINDING,
                    f"the lake has no table {unknown[0]} that the file mirrors",
                    f"It has: {', '.join(map(str, sorted(known)))}.",
                )
            for name in sorted(names or known):
                yield self._compare_alone(name, known[name], repair=repair)
            if not names:
                yield from self._find_unloaded(known)

    def _keep_mirrors_away(self, held: contextlib.ExitStack) -> None:
        """Let no mirror of the slot start, or load tables; its stream is not followed either."""
        try:
            held.enter_context(SlotLock(self.ends.url, self.ends.slot))
            self._keeps_away = True
            held.callback(setattr, self, "_keeps_away", False)  # noqa: FBT003 - an attribute's value
            if not self._is_followed():
                return
        except HeadraceError as error:
            if error.kind is not Kind.SLOT_IN_USE:
                raise
        raise HeadraceError(
            Kind.SLOT_IN_USE,
            f"the mirror of the slot {self.ends.slot} runs; two programs cannot write its tables",
            "Stop it, and repair then.",
        )

    def _compare_alone(self, name: TableName, known: TablePosition, *, repair: bool) -> TableComparison:
        """Compare one table; where that is not possible, only this one is not compared."""
        if not repair and known.waits_for is not None:
            return TableComparison(name, waits_for=known.waits_for)
        with ReadSession(self.ends.url) as session:
            table = self.ends.selection.read(session, [name]).get(name)
        if table is None:
            return TableComparison(name)  # the database does not have it any more, and the mirror leaves it
        try:
            actions, _ = decide_each(self.ends, self.loader.waiting, {name: table}, {name: known})
            return self._compare_as(actions[name], name, known, repair=repair)
        except self.loader.waiting.failures as error:
            if isinstance(error, HeadraceError) and not concerns_table(error):
                raise
            return TableComparison(name, waits_for=self.loader.waiting.failure_of(table, error).cause)

    def _compare_as(
        self, action: Action, name: TableName, known: TablePosition, *, repair: bool
    ) -> TableComparison:
        """Compare one table of which `action` is to be done."""
        # Rows of one mode read as another's would all be wrong, or could not be read.
        if isinstance(action, Wait) and not action.ends_with_load:
            return TableComparison(name, waits_for=action.error.cause)
        found = self._compare(name)
        if repair and (found.wrong or found.undecided or isinstance(action, Wait)):
            self._read_again(found, known)
        else:
            found.waits_for = known.waits_for
        return found

    def _find_unloaded(self, known: Mapping[TableName, TablePosition]) -> Iterator[TableComparison]:
        """Yield the tables that the lake should have, and does not."""
        for name in sorted({*self.chooser.read(known), *self.chooser.waiting.tables} - known.keys()):
            why = self.chooser.waiting.reason(name) or "the lake does not have it yet"
            yield TableComparison(name, waits_for=why)

    def _read_again(self, found: TableComparison, known: TablePosition) -> None:
        """Load a table, and note that it is as the database's by now."""
        name = found.table
        # The stream does not have it where the table waited. Before the load: it may be altered meanwhile.
        sent = read_sent(self.ends, [name]).of(name)
        for _, (table, position) in self.loader.load([name], {name: known}):
            loaded = table, replace(position, sent=sent)
            self.notes.positions = self.notes.table.read()
            stream = self.notes.positions.stream
            assert stream is not None
            self.loader.waiting.remove(name)
            # The others stay as they were noted: one may be behind the stream, for which the slot has kept
            # the log, or which a killed mirror wrote ahead of its note.
            self.notes.note(stream, {name: table}, {name: loaded}, only={name}, read_from=0)
            found.read_again = True
        if not found.read_again:
            found.waits_for = self.loader.waiting.reason(name)
        elif found.compared:
            # What counts is what the lake has afterwards, not what was written.
            found.repaired, found.undecided = found.wrong - self._compare(name).wrong, 0

    def _compare(self, name: TableName) -> TableComparison:
        """Compare one table; again where it is truncated, rewritten or altered meanwhile."""
        end, tries = time.monotonic() + _WAIT_SECONDS, 0
        while True:
            tries += 1
            try:
                return self._compare_unmoved(name)
            except (RewrittenError, AlteredError) as error:
                is_moving = isinstance(error, RewrittenError) or self._is_followed()
                # A comparison of a large table may itself take longer than all the time.
                if not is_moving or (tries >= _LOOKS and time.monotonic() > end):
                    raise
                time.sleep(_POLL_SECONDS)  # the mirror looks every ten seconds

    def _compare_unmoved(self, name: TableName) -> TableComparison:
        found = TableComparison(name)
        wanted = np.ones(digests.BUCKETS, np.bool_)
        wrong: digests.RowDifferences | None = None
        for number in range(_LOOKS):
            # Keys take memory: the last look takes some of the rows that were wrong at each look before.
            sought = _NO_KEYS if wrong is None or number < _LOOKS - 1 else wrong.first(_MOST_KEYS)
            look = self._look(found, wanted, sought)
            if look is None:
                return found
            if not look.is_complete:
                found.undecided = len(look.differing)
                return found
            # A row that is on its way is another one at the next look.
            wrong = look.differing if wrong is None else look.differing.lasting(wrong)
            found.changing = len(look.differing) - len(wrong)
            if not len(wrong):
                return found
            if number == _LOOKS - 1:
                found.tell(look.table, wrong, look.keys)
        return found

    def _look(self, found: TableComparison, wanted: digests.Flags, sought: digests.Hashes) -> _Look | None:
        """Look at both sides once; return None where nothing is left to be compared.

        Args:
            found: is told how many rows there are, and whether they can be compared.
            wanted: the buckets that are looked at; those that are equal are taken out.
            sought: the hashes of the keys that are found.
        """
        name = found.table
        with positioned_snapshot(self.ends.url, self.ends.slot) as (start, snapshot):
            with ReadSession(self.ends.url, snapshot=snapshot, lock_seconds=LOCK_SECONDS) as session:
                table = self.ends.selection.read(session, [name]).get(name)
                if table is None:
                    return None  # the database does not have it any more, and the mirror leaves it
                if table.part.mode == "changes":
                    found.compared = False
                    return None
                with reading_rows(name):
                    parts = plan_tables(session, [name], inheritance_children=False)[name]
            read = partial(self._rows, table, [range_ for part in parts for range_ in part.ranges], snapshot)
            ours = digests.RowsDigest(read())
            # A bucket that was equal once is right; only the others are looked at again.
            wanted &= ours.differing(digests.RowsDigest(self._lake_rows(table)))
            found.rows = ours.rows
            if not wanted.any():
                found.changing = 0
                return None
            keys = digests.KeyFinder(table.key, sought)
            expected = digests.RowHashes(keys.watch(read()), wanted, ours.counts)
        is_complete = self._await_complete(name, start)
        differing = expected.compare(keys.watch(self._lake_rows(table)))
        return _Look(table, differing, keys.found, is_complete)

    def _rows(
        self, table: MirroredTable, ranges: Sequence[CtidRange], snapshot: str
    ) -> Iterator[digests.HashedBatch]:
        """Yield the rows that the database has in a snapshot."""
        with RowSession(self.ends.url, snapshot=snapshot, lock_seconds=LOCK_SECONDS) as session:
            yield from digests.hashed(read_rows(session, table, ranges), table.key)

    def _lake_rows(self, table: MirroredTable) -> Iterator[digests.HashedBatch]:
        """Return the lake's present rows, with the table's columns.

        Raises:
            AlteredError: the lake's table has other columns.
        """
        lake = opened(self.ends.lake, table.name)
        followed = {field.name: field.type for field in lake.schema if is_followed(field)}
        if followed != {field.name: field.type for field in table.schema}:
            raise AlteredError(
                Kind.CONTINUITY,
                f"the lake's table {table.name} does not have the columns of the database's yet",
                "Start `headrace mirror`, wait a moment, and verify again.",
            )
        present = (batch.filter(table.rules.present(batch)) for batch in lake.rows())
        return digests.hashed(
            (batch.select(table.columns).cast(table.schema) for batch in present), table.key
        )

    def _await_complete(self, name: TableName, start: Lsn) -> bool:
        """Wait until the lake has all that a snapshot shows; return whether it has."""
        end = time.monotonic() + _WAIT_SECONDS
        while time.monotonic() < end:
            position = self.notes.table.read().tables.get(name)
            if position is not None and position.complete >= start:
                return True
            # Nobody writes it any more: then it is complete only if nothing is left in the log.
            if not self._is_followed():
                return self._is_read_up()
            time.sleep(_POLL_SECONDS)
        return False

    def _is_followed(self) -> bool:
        """Tell whether a mirror runs, or somebody else reads the slot: a mirror leaves it between batches."""
        with connect(self.ends.url) as connection:
            if not self._keeps_away and find_holder(connection, self.ends.slot) is not None:
                return True
            return any(active for (active,) in execute(connection, _ACTIVE, (self.ends.slot,)))

    def _is_read_up(self) -> bool:
        """Tell whether the slot, which nobody reads, has no change left."""
        with ReadSession(self.ends.url) as session:
            found = session.query(_READ_UP, (self.ends.slot, self.ends.publication))
        return (True,) in found


@dataclass(frozen=True, slots=True)
class _Look:
    """What a look at a table found.

    Attributes:
        table: the table.
        differing: the rows that the lake does not have as a snapshot of before shows them.
        keys: the keys that were sought, by hash.
        is_complete: whether the lake has all that the snapshot shows.
    """

    table: MirroredTable
    differing: digests.RowDifferences
    keys: Mapping[int, Key]
    is_complete: bool
