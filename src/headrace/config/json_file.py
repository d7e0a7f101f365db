"""Read a JSON file that a deployment names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headrace.errors import HeadraceError, Kind


def read_json_object(path: Path) -> dict[str, Any]:
    """Read the object in the file.

    Raises:
        HeadraceError: CONFIG, with the place of a mistake.
    """
    try:
        content = json.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise HeadraceError(Kind.CONFIG, f"{path}: cannot be read: {error.strerror}") from error
    except json.JSONDecodeError as error:
        place = f"{path}:{error.lineno}:{error.colno}"
        raise HeadraceError(Kind.CONFIG, f"{place}: not JSON: {error.msg}") from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise HeadraceError(Kind.CONFIG, f"{path}: not JSON in UTF-8", "Save the file as UTF-8.") from error
    if not isinstance(content, dict):
        raise HeadraceError(Kind.CONFIG, f"{path}: holds no JSON object", "Write { … }.")
    return content
