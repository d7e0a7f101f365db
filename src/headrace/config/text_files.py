"""Read and write the text files of a deployment, or say which cannot be read, and where."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.errors import HeadraceError, Kind, LocatedError, Place


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
        data = path.read_bytes()
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
    text = read_text(path, "the file", Kind.CONFIG)
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        place = Place(path, error.lineno, error.colno)
        raise LocatedError(Kind.CONFIG, place, f"not JSON: {error.msg}") from error
    except RecursionError as error:
        raise HeadraceError(Kind.CONFIG, f"{path}: nested too deeply") from error
    if not isinstance(content, dict):
        raise HeadraceError(Kind.CONFIG, f"{path}: holds no JSON object", "Write { … }.")
    return content


def write_files(folder: Path, files: Mapping[Path, bytes]) -> None:
    """Write all files, or none: each beside the old one first, then in its place.

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
            new = target.with_name(f".{target.name}.new")
            beside[new] = target
            new.write_bytes(data)
            if target.exists():
                shutil.copymode(target, new)
        for new, target in beside.items():
            new.replace(target)
    except OSError as error:
        for new in beside:
            new.unlink(missing_ok=True)
        raise HeadraceError(
            Kind.DISK, f"{folder}: the files cannot be written: {error.strerror}", "Name another --folder."
        ) from error
