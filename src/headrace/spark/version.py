"""Check which versions of PySpark support the sources.

PySpark 4.0 and 4.1 ask a streaming source for the end of the next batch without passing the query's position.
After a restart only the slot could supply it. The slot is a batch behind the checkpoint, and does not know
which rows of the initial snapshot were read: rows already written would be read again as new ones.
"""

from __future__ import annotations

import re

from headrace.errors import HeadraceError, Kind

FIRST = (4, 2)
"""The first version that passes the query's position to its sources."""


def is_supported(version: str) -> bool:
    """Tell whether a PySpark of this version, like `4.3.0` or `4.4.0.dev1`, supports the sources."""
    return tuple(map(int, re.findall(r"\d+", version)[:2])) >= FIRST


def check_version(version: str, name: str) -> None:
    """Refuse a PySpark that is too old for the source `name`.

    Raises:
        HeadraceError: DEPENDENCY.
    """
    if not is_supported(version):
        first = ".".join(map(str, FIRST))
        raise HeadraceError(
            Kind.DEPENDENCY,
            f"{name} needs PySpark {first} or newer, and this is PySpark {version}, which tells a "
            "source too little for going on from a checkpoint",
            f"Run the program with PySpark {first} or newer, for example: pip install 'pyspark>={first}'.",
        )
