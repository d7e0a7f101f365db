"""Read, write and list the files of a lake: in a folder, in an object store, or where a catalog says."""

from __future__ import annotations

import contextlib
import os
import posixpath
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol, Self, cast

import obstore
from obstore.exceptions import AlreadyExistsError, NotFoundError, PreconditionError
from obstore.store import from_url
from pyarrow.fs import FileSelector, FileSystem, FileType
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

_BUFFER_BYTES = 1 << 20


class LakeFiles(Protocol):
    """A folder of files, by which tables are found."""

    @property
    def io(self) -> FileIO:
        """What the library reads and writes with."""

    def create(self, path: str, content: bytes) -> bool:
        """Make a file with this content, in one step; return False where it is there already."""

    def replace(self, path: str, content: bytes) -> None:
        """Make a file have this content, in one step."""

    def names(self, folder: str, since: str) -> list[str]:
        """Return the names of files in a folder that sort behind `since`; none where there is no folder."""


class FolderFiles:
    """Files in a folder of this machine."""

    def __init__(self) -> None:
        self.io: FileIO = PyArrowFileIO()

    def create(self, path: str, content: bytes) -> bool:
        """Make a file with this content, in one step; return False where it is there already."""
        with _written_beside(path, content) as made:
            try:
                os.link(made, path)
            except FileExistsError:
                return False
        return True

    def replace(self, path: str, content: bytes) -> None:
        """Make a file have this content, in one step."""
        with _written_beside(path, content) as made:
            Path(made).replace(path)

    def names(self, folder: str, since: str) -> list[str]:
        """Return the names of files in a folder that sort behind `since`; none where there is no folder."""
        try:
            return [name for name in os.listdir(folder) if name > since]  # noqa: PTH208 - names, not paths
        except FileNotFoundError:
            return []


@contextlib.contextmanager
def _written_beside(path: str, content: bytes) -> Iterator[str]:
    """Write a file beside `path`, which is gone afterwards."""
    folder = posixpath.dirname(path)
    Path(folder).mkdir(parents=True, exist_ok=True)
    handle, made = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=folder)
    try:
        with open(handle, "wb") as file:  # noqa: PTH123 - a handle
            file.write(content)
        Path(made).chmod(0o644)
        yield made
    finally:
        Path(made).unlink(missing_ok=True)


class StoreFiles:
    """Files in an object store, whose credentials stand in the environment.

    Args:
        url: of the lake.
        retries: how often a request is tried again; None: for three minutes.
    """

    def __init__(self, url: str, retries: int | None = None) -> None:
        self._store = from_url(url, retry_config=None if retries is None else {"max_retries": retries})
        self._url = url
        self.io: FileIO = StoreFileIO(self._store, url)

    def create(self, path: str, content: bytes) -> bool:
        """Make a file with this content, in one step; return False where it is there already."""
        try:
            obstore.put(self._store, key_of(path, self._url), content, mode="create")
        except (AlreadyExistsError, PreconditionError):
            return False
        return True

    def replace(self, path: str, content: bytes) -> None:
        """Make a file have this content, in one step."""
        obstore.put(self._store, key_of(path, self._url), content)

    def names(self, folder: str, since: str) -> list[str]:
        """Return the names of files in a folder that sort behind `since`; none where there is no folder."""
        key = key_of(folder, self._url)
        found = obstore.list(self._store, prefix=key, offset=f"{key}/{since}")
        return [posixpath.basename(file["path"]) for part in found for file in part]


def key_of(location: str, url: str) -> str:
    """Return a file's path from the lake's URL.

    Raises:
        OSError: it is not in the lake.
    """
    plain, base = (text.replace("s3a://", "s3://", 1) for text in (location, url))
    if not plain.startswith(f"{base}/"):
        raise OSError(f"{location} is not in {url}")
    return plain.removeprefix(f"{base}/")


class StoreFileIO(FileIO):
    """Lets the library read and write files of an object store."""

    def __init__(self, store: Any, url: str) -> None:
        super().__init__()
        self.store = store
        self._url = url

    def new_input(self, location: str) -> StoreInput:
        """Return a file to read."""
        return StoreInput(location, self.store, key_of(location, self._url))

    def new_output(self, location: str) -> StoreOutput:
        """Return a file to write."""
        return StoreOutput(location, self.store, key_of(location, self._url))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Remove a file."""
        path = location if isinstance(location, str) else location.location
        with contextlib.suppress(NotFoundError):
            obstore.delete(self.store, key_of(path, self._url))

    def list(self, folder: str) -> Iterator[tuple[str, float]]:
        """Yield the location and time of each file in a folder, and in those in it."""
        for part in obstore.list(self.store, prefix=key_of(folder, self._url)):
            for file in part:
                yield f"{self._url}/{file['path']}", file["last_modified"].timestamp()


class StoreInput(InputFile):
    """A file of an object store that is read."""

    def __init__(self, location: str, store: Any, key: str) -> None:
        super().__init__(location)
        self._store = store
        self._key = key

    def __len__(self) -> int:
        return int(obstore.head(self._store, self._key)["size"])

    def exists(self) -> bool:
        """Tell whether it is there."""
        try:
            obstore.head(self._store, self._key)
        except (FileNotFoundError, NotFoundError):
            return False
        return True

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002, FBT002 - the library's
        """Open it."""
        return cast(InputStream, _Reader(obstore.open_reader(self._store, self._key)))


class _Reader:
    """An open file, as PyArrow and the library want one."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        left = self._reader.size - self._reader.tell()
        return bytes(self._reader.read(left if size < 0 else min(size, left)))

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._reader.seek(offset, whence))

    def tell(self) -> int:
        return int(self._reader.tell())

    def size(self) -> int:
        return int(self._reader.size)

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class StoreOutput(OutputFile):
    """A file of an object store that is written."""

    def __init__(self, location: str, store: Any, key: str) -> None:
        super().__init__(location)
        self._store = store
        self._key = key

    def __len__(self) -> int:
        return int(obstore.head(self._store, self._key)["size"])

    def exists(self) -> bool:
        """Tell whether it is there."""
        return self.to_input_file().exists()

    def to_input_file(self) -> StoreInput:
        """Return it as a file to read."""
        return StoreInput(self.location, self._store, self._key)

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: ARG002, FBT002 - names are never used twice
        """Open it."""
        return cast(OutputStream, _Writer(obstore.open_writer(self._store, self._key)))


class _Writer:
    """An open file that is written; one that an error ends is not stored."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self._written = 0
        self.closed = False

    def write(self, content: Any) -> int:
        self._writer.write(content)
        self._written += memoryview(content).nbytes
        return memoryview(content).nbytes

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        """Leave it to `close`: a part of a file is nothing in an object store."""

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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
        system: FileSystem = io.fs_by_scheme(scheme, authority)
        prefix = folder.removesuffix(path.rstrip("/"))
        for file in system.get_file_info(FileSelector(path, allow_not_found=True, recursive=True)):
            if file.type == FileType.File:
                yield f"{prefix}{file.path}", file.mtime.timestamp() if file.mtime else time.time()
