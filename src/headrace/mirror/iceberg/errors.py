"""Tell a lake that cannot be read or written from other errors, whichever library says so."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from headrace.errors import HeadraceError


class IcebergError(Exception):
    """A table or its catalog cannot be read or written."""


@contextlib.contextmanager
def telling_errors() -> Iterator[None]:
    """Turn what the library raises into `IcebergError`; Headrace's errors and OSError stay.

    Each catalog's client has classes of its own, and each broken file of a table breaks another reader.

    Raises:
        IcebergError: the library failed.
    """
    try:
        yield
    except (HeadraceError, OSError, IcebergError):
        raise
    except Exception as error:
        raise IcebergError(f"{type(error).__name__}: {error}") from error
