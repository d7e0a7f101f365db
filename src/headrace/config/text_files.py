"""Read the text files of a deployment, or say where one of them cannot be read."""

from __future__ import annotations

import json
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
