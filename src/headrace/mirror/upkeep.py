"""Keep the lake's tables fit to be read: join small files, remove those that only old versions have."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from headrace.config.mirror import MirrorConfig
from headrace.errors import HeadraceError, Kind
from headrace.mirror.lake import POSITIONS, Lake, check_answers, first_line, opened
from headrace.model.names import TableName
from headrace.reporter import Reporter

SMALL_FILES = 20
"""So many small files are joined."""
_REMOVAL_SECONDS = 3600.0


class LakeUpkeep:
    """Looks after tables between two batches, by the one program that writes them.

    Args:
        lake: the tables.
        config: of the mirror.
        report: is told what was done.
    """

    def __init__(self, lake: Lake, config: MirrorConfig, report: Reporter) -> None:
        self._lake = lake
        self._config = config
        self._report = report
        self._removed: dict[TableName, float] = {}

    def tend(
        self, tables: Iterable[TableName], noted: Mapping[TableName, int] = MappingProxyType({})
    ) -> None:
        """Join the small files of tables that were written, and remove old files where that is due.

        Of the others one is looked at each time: to look at all of a thousand would let a batch wait.

        Args:
            tables: those that were written.
            noted: the version that is noted of each table.
        """
        due = (name for name in noted if self._is_due(name))
        for name in {**dict.fromkeys(tables), **dict.fromkeys(itertools.islice(due, 1))}:
            try:
                self._tend(name, noted.get(name))
            except HeadraceError as error:
                # What another program did to a table, the next batch of that table meets, and it alone.
                if error.kind not in {Kind.CONTINUITY, Kind.SINK_BUSY}:
                    raise
                self._report.warning(f"the files of {name} stay as they are: {error.cause}")
            except self._lake.errors as error:
                check_answers(self._lake, error)
                self._report.warning(f"the files of {name} stay as they are: {first_line(error)}")
        # Every batch writes it again, so that its old files are the most.
        self._tend(POSITIONS, None)

    def _is_due(self, name: TableName) -> bool:
        return time.monotonic() >= self._removed.get(name, float("-inf")) + _REMOVAL_SECONDS

    def _tend(self, name: TableName, noted: int | None) -> None:
        """Join the small files of a table where there are many, and remove old ones where that is due."""
        size, table = self._config.file_size, self._lake.open(name)
        if table is None:
            return
        # The positions are one file: each batch replaces it.
        if name != POSITIONS and table.count_files(size // 2) >= SMALL_FILES:
            before, after = table.join_files(size)
            self._report.info(f"joined files of {name}: {before} became {after}")
            table = opened(self._lake, name)  # else the new files were of no version that is known
        if self._is_due(name):
            self._removed[name] = time.monotonic()
            removed = table.remove_files(self._config.retention_seconds, noted)
            if removed:
                self._report.info(f"removed {removed} old files of {name}")
