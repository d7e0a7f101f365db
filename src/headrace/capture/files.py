"""How does one process of a machine tell another something, so that it is read whole or not at all?"""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Put `text` into `path`, in the place of what was there.

    Raises:
        OSError: it cannot be written; what was there still is.
    """
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(text)
    os.replace(beside, path)  # noqa: PTH105 - whole or not at all
