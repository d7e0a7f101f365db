"""End old snapshots of a table, and remove the files that no other has."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Collection, Iterator

from pyarrow.fs import FileSelector
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import ancestors_of

from headrace.mirror.iceberg.parquet import file_system

_MOST_SNAPSHOTS = 1000
"""So many are kept, though they are younger than the retention: every commit writes all of them down."""
_HOUR = 3600.0
_SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*:/*|^/+")
# Spark writes checksums beside a folder's files.
_OURS = (".parquet", ".avro", ".metadata.json", ".crc")


def remove_files(table: Table, retention_seconds: float, noted: int | None = None) -> int:
    """End snapshots that were followed by another before the retention; remove what no snapshot has any more.

    Args:
        table: the table.
        retention_seconds: the retention.
        noted: the snapshot that stays with all after it; None: there is none.

    Returns:
        How many files were removed.
    """
    now = time.time()
    ended = _ended(table, now, retention_seconds, noted)
    named = {True: set[str](), False: set[str]()}  # by snapshots that are ended, and by the others
    files_of = functools.cache(functools.partial(_files_of, table.io))
    for snapshot in table.metadata.snapshots:
        files = map(files_of, snapshot.manifests(table.io))
        named[snapshot.snapshot_id in ended].update([snapshot.manifest_list], *files)
    needed = named[False] | _described_files(table)
    # A file that nobody ever named may belong to a commit that is under way: it stays for the retention.
    surplus = (named[True] - needed) | set(_unnamed(table, needed, now - retention_seconds))
    # First nobody names them, then they go: killed in between, they are left behind and found later.
    if ended:
        table.maintenance.expire_snapshots().by_ids(sorted(ended)).commit()
    for path in surplus:
        table.io.delete(path)
    return len(surplus)


def _ended(table: Table, now: float, retention_seconds: float, noted: int | None) -> set[int]:
    """Return the snapshots that readers may not read any more."""
    metadata = table.metadata
    if now * 1000 < metadata.last_updated_ms:
        return set()  # the clock was set back; what is ended now would be said to be of the time before
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    history = list(ancestors_of(metadata.current_snapshot(), metadata))
    found = set[int]()
    for number, (snapshot, following) in enumerate(zip(history[1:], history, strict=False), 1):
        age = now - following.timestamp_ms / 1000
        if age > retention_seconds or (number >= _MOST_SNAPSHOTS and age > _HOUR):
            found.add(snapshot.snapshot_id)
        if snapshot.snapshot_id == noted:
            # Back to this one a mirror follows what was committed: a gap would pass for another program's.
            found.clear()
    return found - named


def _files_of(io: FileIO, manifest: ManifestFile) -> set[str]:
    """Return the files that a list of files names, with its own."""
    entries = manifest.fetch_manifest_entry(io)
    return {manifest.manifest_path, *(entry.data_file.file_path for entry in entries)}


def _described_files(table: Table) -> set[str]:
    """Return the other files that a table's metadata name."""
    metadata = table.metadata
    return {
        table.metadata_location,
        *(entry.metadata_file for entry in metadata.metadata_log),
        *(file.statistics_path for file in metadata.statistics),
    }


def _unnamed(table: Table, needed: Collection[str], before: float) -> Iterator[str]:
    """Yield files older than a time that nobody names: a killed program leaves such files, too."""
    kept = set(map(_bare, needed))
    location = table.location()
    files = file_system(table.io, location).get_file_info(
        FileSelector("", allow_not_found=True, recursive=True)
    )
    for file in files:
        path = f"{location}/{file.path}"
        if path.endswith(_OURS) and file.mtime_ns / 1e9 < before and _bare(path) not in kept:
            yield path


def _bare(path: str) -> str:
    """Return a path without its scheme, which programs write differently: `s3a://`, `file:/`."""
    return _SCHEME.sub("", path)
