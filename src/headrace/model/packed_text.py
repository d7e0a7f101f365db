"""Pack JSON text for the documents and checkpoints that store it: it takes about a quarter of the room."""

from __future__ import annotations

import base64
import zlib


def packed(text: str) -> str:
    """Return text in fewer characters; `unpacked` reads it."""
    return base64.b64encode(zlib.compress(text.encode())).decode("ascii")


def unpacked(text: str) -> str:
    """Return what was packed.

    Raises:
        ValueError: `packed` did not write the text.
    """
    try:
        return zlib.decompress(base64.b64decode(text)).decode()
    except zlib.error as error:
        raise ValueError(str(error)) from error
