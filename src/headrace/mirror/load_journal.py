"""Note the units that a load has read, so that the next one need not read them again.

The notes stand beside the table's data files, one small JSON object for each unit, in a folder that readers
of lakes ignore. A note is taken only where all that its rows depend on is as it was (decision 0122).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
from pyarrow.fs import FileSelector, FileType

from headrace.mirror.files import DataFile
from headrace.mirror.lake import Lake
from headrace.mirror.load_units import LoadedUnit, NotedUnit
from headrace.mirror.tables import MirroredTable
from headrace.model.lsn import Lsn
from headrace.model.names import CtidRange, TableName
from headrace.snapshot import PlannedPart, RangesDone
from headrace.snapshot.unchanged import SnapshotBounds

FOLDER = "_headrace_load"
_FORM = 2


@dataclass(frozen=True, slots=True)
class LoadSnapshot:
    """The snapshot in which a load reads.

    Attributes:
        start: the first position in the log (bytes) whose commits it does not show.
        bounds: the transactions that it sees.
        origin: the system, timeline and database, as `LogOrigin.to_json` has them.
    """

    start: Lsn
    bounds: SnapshotBounds
    origin: Mapping[str, Any]


class LoadJournal:
    """The notes of one table's load.

    Args:
        lake: has the table.
        table: the table as it is.
        snapshot: in which it is read.
    """

    def __init__(self, lake: Lake, table: MirroredTable, snapshot: LoadSnapshot) -> None:
        self._folder = lake.folder(table.name, table.lake_schema)
        self._snapshot = snapshot
        self._identity = identity_of(table, snapshot.origin, lake.form(table.name, table.lake_schema))

    def find_units(self, parts: Sequence[PlannedPart], since: Lsn) -> list[NotedUnit]:
        """Return units of earlier loads whose ranges are planned, none of which overlap.

        Whether their rows are still the same, `has_same_rows` tells.

        Args:
            parts: all ranges of the table, now.
            since: the position (bytes) up to which the lake's table has the log; files of older loads may be
                the table's own by now.
        """
        planned = [range_ for part in parts for range_ in part.ranges]
        files = {(range_.table, range_.filenode) for range_ in planned if range_.filenode is not None}
        done = RangesDone()
        found = []
        # Newest first: of two notes for the same rows the later one is likelier to be right still.
        for unit in sorted(self._read(), key=lambda unit: unit.start, reverse=True):
            is_planned = {(range_.table, range_.filenode) for range_ in unit.ranges} <= files
            # Files of two units that overlap would bring the rows of the overlap twice.
            if is_planned and done.left(unit.ranges) == [*unit.ranges] and self._is_usable(unit, since):
                found.append(unit)
                for range_ in unit.ranges:
                    done = done.done(range_)
        return found

    def _is_usable(self, unit: NotedUnit, since: Lsn) -> bool:
        """Tell whether a unit's files may have what this load's snapshot shows, and are nobody's."""
        # Files of an older load may be the table's own by now, and are not to be in it twice.
        is_older = since < unit.start - 1 and unit.start <= self._snapshot.start
        return is_older and self._snapshot.bounds.can_judge(unit.oldest) and self._has(unit.files)

    def note(self, loaded: LoadedUnit) -> None:
        """Write down that a unit is read, in the place of the note that it had before.

        Raises:
            OSError: the folder cannot be written.
        """
        unit = loaded.unit
        if any(range_.filenode is None for range_ in unit.ranges):
            return  # no file tells whether its rows are where they were
        content = {
            "form": _FORM,
            "identity": self._identity,
            "start": self._snapshot.start,
            "oldest": self._snapshot.bounds.oldest,
            "ranges": [_range_to_json(range_) for range_ in unit.ranges],
            "files": [asdict(file) for file in loaded.files],
        }
        # A unit that is read again takes the place of its old note, so that notes do not grow.
        name = uuid.uuid4().hex if unit.noted is None else unit.noted.name
        self._folder.create_dir(FOLDER)
        text = json.dumps(content).encode()
        # behind a buffer that holds all of it: deltalake's streams do not take PyArrow's own buffers
        with self._folder.open_output_stream(_path(name), buffer_size=len(text) + 1) as out:
            out.write(text)

    def clear(self) -> None:
        """Remove all notes."""
        for name in self._names():
            self._folder.delete_file(_path(name))

    def _names(self) -> list[str]:
        found = self._folder.get_file_info(FileSelector(FOLDER, allow_not_found=True))
        return [info.base_name.removesuffix(".json") for info in found if info.type is FileType.File]

    def _read(self) -> Iterator[NotedUnit]:
        """Yield the units that were read from the same table in the same form; a torn note is none."""
        for name in self._names():
            with self._folder.open_input_file(_path(name)) as source:
                text = source.read()
            with contextlib.suppress(ValueError, KeyError, TypeError):
                content = json.loads(text)
                if content["form"] == _FORM and content["identity"] == self._identity:
                    yield NotedUnit(
                        name,
                        content["start"],
                        content["oldest"],
                        tuple(map(_range_from_json, content["ranges"])),
                        tuple(DataFile(**file) for file in content["files"]),
                    )

    def _has(self, files: Sequence[DataFile]) -> bool:
        """Tell whether files are there, as long as they were written."""
        return all(self._folder.get_file_info(file.name).size == file.size for file in files)


def _path(name: str) -> str:
    return f"{FOLDER}/{name}.json"


def identity_of(table: MirroredTable, origin: Mapping[str, Any], form: str) -> str:
    """Return a digest of all that the files of a table's rows depend on, but for the rows.

    Its partitions are not among it: each range names its file.
    """
    prints = table.catalog.tables.get(table.name)
    content = [
        [origin.get(name) for name in ("system", "timeline", "timeline_began", "database")],
        table.relation,
        table.mode,
        table.where,
        form,
        [[field.name, str(field.type), _metadata(field)] for field in table.lake_schema],
        sorted(table.defaults.items()),
        sorted(
            [name, column.number, column.type_oid, column.modifier, column.inside, sorted(column.versions)]
            for name, column in (prints.columns if prints is not None else {}).items()
        ),
    ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _metadata(field: pa.Field) -> list[tuple[str, str]]:
    return sorted((key.decode(), value.decode()) for key, value in (field.metadata or {}).items())


def _range_to_json(range_: CtidRange) -> list[Any]:
    table = range_.table
    name = None if table is None else [table.schema, table.name]
    return [range_.first_block, range_.last_block, name, range_.filenode]


def _range_from_json(stored: Sequence[Any]) -> CtidRange:
    first, last, name, filenode = stored
    return CtidRange(first, last, None if name is None else TableName(*name), filenode)
