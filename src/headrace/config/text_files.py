"""Read and write the text files of a deployment, or say which cannot be read, and where.

A reader finds files that are about to be written as if they had been (`as_if_written`), so that they can be
loaded as a run would load them before they replace the old ones.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import Any

from headrace.errors import HeadraceError, Kind, LocatedError, Place

_LONGEST_PART = 100
_UNWRITTEN: ContextVar[Mapping[Path, bytes]] = ContextVar(
    "files that are about to be written", default=MappingProxyType({})
)


@contextlib.contextmanager
def as_if_written(files: Mapping[Path, bytes]) -> Iterator[None]:
    """Let `read_text` and `is_file` find these files as if they had been written; for this thread alone."""
    token = _UNWRITTEN.set({_absolute(path): data for path, data in files.items()})
    try:
        yield
    finally:
        _UNWRITTEN.reset(token)


def is_file(path: Path) -> bool:
    """Whether there is such a file."""
    try:
        return _absolute(path) in _UNWRITTEN.get() or path.is_file()
    except OSError:  # a name that is too long, a folder that may not be searched
        return False


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100 - Path.absolute keeps "..", and resolve follows links


def read_text(path: Path, what: str, kind: Kind, remedy: str = "Check the path.") -> str:
    """Read a file in UTF-8.

    Args:
        path: the file.
        what: what it is to the deployment, for the message.
        kind: the kind of the error.
        remedy: what to do where there is no such file.

    Raises:
        HeadraceError: `kind`; a LocatedError where a byte is not UTF-8.
    """
    try:
        unwritten = _UNWRITTEN.get().get(_absolute(path))
        data = path.read_bytes() if unwritten is None else unwritten
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise HeadraceError(kind, f"{str(path)!r}: {what} cannot be read: {reason}", remedy) from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        place = Place(path, before.count(b"\n") + 1, len(before) - before.rfind(b"\n"))
        raise LocatedError(
            kind, place, f"byte 0x{data[error.start]:02x} is not UTF-8", "Save the file as UTF-8."
        ) from error


def read_json_object(path: Path) -> dict[str, Any]:
    """Read the JSON object in a file.

    Raises:
        HeadraceError: CONFIG; a LocatedError where the text is not JSON.
    """
    content = parse_json(path, read_text(path, "the file", Kind.CONFIG))
    if not isinstance(content, dict):
        raise HeadraceError(Kind.CONFIG, f"{path}: holds no JSON object", "Write { … }.")
    return content


def parse_json(path: Path, text: str) -> Any:
    """Return the value of a JSON text, that of a file.

    Raises:
        HeadraceError: CONFIG: it is no JSON, or nested too deeply; a LocatedError where the place is known.
    """
    try:
        value = json.loads(text)
        # What Python reads, and no file can hold: NaN, infinity, half a surrogate pair.
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        place = Place(path, error.lineno, error.colno)
        raise LocatedError(Kind.CONFIG, place, f"not JSON: {error.msg}", "Correct the file.") from error
    except ValueError as error:
        problem = "not JSON: a number that is not finite, or half a character (a lone surrogate)"
        raise HeadraceError(Kind.CONFIG, f"{path}: {problem}", "Correct the file.") from error
    except RecursionError as error:
        raise HeadraceError(
            Kind.CONFIG, f"{path}: nested too deeply", "Write it with fewer levels."
        ) from error
    return value


def write_files(folder: Path, files: Mapping[Path, bytes]) -> None:
    """Write all files, or none: each beside the old one first, then in its place, in the order given.

    A new file replaces what a symbolic link leads to, and keeps the old one's permissions.

    Args:
        folder: where they are; it need not exist.
        files: the bytes of each path.

    Raises:
        HeadraceError: DISK.
    """
    beside: dict[Path, Path] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, data in files.items():
            target = file.resolve()
            if target.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            new = target.with_name(f".{target.name[:_LONGEST_PART]}.{secrets.token_hex(4)}.new")
            with new.open("xb") as writing:  # never what is there, nor what a link leads to
                beside[new] = target
                if target.exists():
                    shutil.copymode(target, new)
                writing.write(data)
                writing.flush()
                os.fsync(writing.fileno())  # else a crash of the machine may leave an empty file
        for new, target in beside.items():
            new.replace(target)
    except OSError as error:
        for new in beside:
            new.unlink(missing_ok=True)
        raise HeadraceError(
            Kind.DISK, f"{folder}: the files cannot be written: {error.strerror}", "Name another --folder."
        ) from error
