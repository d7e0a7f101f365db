"""Read, write and list the files of a lake: in a folder, in an object store, or where a catalog says."""

from __future__ import annotations

import contextlib
import functools
import posixpath
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, NotFoundError, PreconditionError
from obstore.fsspec import FsspecStore
from obstore.store import LocalStore, from_url
from pyarrow.fs import FileSelector, FileType
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from headrace.config.mirror import is_folder


class LakeFiles:
    """A place with the files by which tables are found: a folder, or an object store.

    The credentials of a store stand in the environment.

    Args:
        location: the folder, or the URL.
        retries: how often a request to a store is tried again; None: for three minutes.

    Attributes:
        io: what the library reads and writes with.
    """

    def __init__(self, location: str, retries: int | None = None) -> None:
        self._location = location
        self._is_folder = is_folder(location)
        self._retries: Any = None if retries is None else {"max_retries": retries}
        self.io: FileIO = (
            PyArrowFileIO() if self._is_folder else StoreFileIO(location, self._store, self._retries)
        )

    @functools.cached_property
    def _store(self) -> Any:
        if self._is_folder:
            return LocalStore(self._location, mkdir=True)
        return from_url(self._location, retry_config=self._retries)

    def create(self, path: str, content: bytes) -> bool:
        """Make a file with this content, in one step; return False where it is there already."""
        try:
            obstore.put(self._store, key_of(path, self._location), content, mode="create")
        except (AlreadyExistsError, PreconditionError):
            return False
        return True

    def replace(self, path: str, content: bytes) -> None:
        """Make a file have this content, in one step."""
        obstore.put(self._store, key_of(path, self._location), content)

    def names(self, folder: str, since: str) -> list[str]:
        """Return the names of files in a folder that sort behind `since`; none where there is no folder."""
        # Whoever only looks makes no folder: opening the store of one would.
        if self._is_folder and not Path(folder).is_dir():
            return []
        key = key_of(folder, self._location)
        # Files of snapshots sort before `v`: a store does not even send their names.
        found = obstore.list(self._store, prefix=key, offset=f"{key}/{since}")
        return [posixpath.basename(file["path"]) for part in found for file in part]


def key_of(location: str, base: str) -> str:
    """Return a file's path from the place of the lake.

    Raises:
        OSError: it is not in the lake.
    """
    plain, base = (text.replace("s3a://", "s3://", 1) for text in (location, base))
    if not plain.startswith(f"{base}/"):
        raise OSError(f"{location} is not in {base}")
    return plain.removeprefix(f"{base}/")


class StoreFileIO(FsspecFileIO):
    """Lets the library read and write files of an object store, as `LakeFiles` reaches it."""

    def __init__(self, url: str, store: Any, retries: Any) -> None:
        super().__init__(properties={})
        self._url = url
        self._store = store
        self._retries = retries
        self._systems: dict[str, FsspecStore] = {}

    def get_fs(self, scheme: str, hostname: str | None = None) -> FsspecStore:  # noqa: ARG002 - the library's
        """Return what opens files whose location has this scheme."""
        if scheme not in self._systems:
            # fsspec would keep it for the whole process, with the credentials of its first day
            make: Any = FsspecStore
            self._systems[scheme] = make(scheme, retry_config=self._retries, skip_instance_cache=True)
        return self._systems[scheme]

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Remove a file; one that is gone is as good."""
        path = location if isinstance(location, str) else location.location
        with contextlib.suppress(NotFoundError):
            obstore.delete(self._store, key_of(path, self._url))

    def list(self, folder: str) -> Iterator[tuple[str, float]]:
        """Yield the location and time of each file in a folder, and in those in it."""
        for part in obstore.list(self._store, prefix=key_of(folder, self._url)):
            for file in part:
                yield f"{self._url}/{file['path']}", file["last_modified"].timestamp()


class DataFolder:
    """The folder of a table's data files: see `LoadFolder`."""

    def __init__(self, table: Table) -> None:
        self._io = table.io
        self.place = table.location_provider().new_data_location

    def open_output_stream(self, name: str) -> Any:
        """Open a new file for writing."""
        return self._io.new_output(self.place(name)).create(overwrite=True)

    def names(self, below: str) -> list[str]:
        """Return the names of the files in a folder below this one; none where they cannot be listed."""
        return [posixpath.basename(path) for path, _ in list_files(self._io, self.place(below))]

    def size(self, name: str) -> int | None:
        """Return the size (bytes) of a file; None where it is missing."""
        try:
            return len(self._io.new_input(self.place(name)))
        except (FileNotFoundError, NotFoundError):
            return None

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        with self._io.new_input(self.place(name)).open() as source:
            return source.read()

    def write(self, name: str, content: bytes) -> None:
        """Write a file, in the place of the one that is there."""
        with self.open_output_stream(name) as out:
            out.write(content)

    def delete(self, name: str) -> None:
        """Remove a file."""
        self._io.delete(self.place(name))


def list_files(io: FileIO, folder: str) -> Iterator[tuple[str, float]]:
    """Yield the location and time of each file below a folder; none where they cannot be listed."""
    if isinstance(io, StoreFileIO):
        yield from io.list(folder)
    elif isinstance(io, PyArrowFileIO):
        scheme, authority, path = io.parse_location(folder, io.properties)
        system = io.fs_by_scheme(scheme, authority)
        prefix = folder.removesuffix(path.rstrip("/"))
        for file in system.get_file_info(FileSelector(path, allow_not_found=True, recursive=True)):
            if file.type == FileType.File:
                yield f"{prefix}{file.path}", file.mtime.timestamp() if file.mtime else time.time()
