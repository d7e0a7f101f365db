"""Which versions of PySpark carry the sources?

PySpark 4.0 and 4.1 ask a streaming source where the next batch ends without telling it where the query
stands. After a restart only the slot could say that. It is a batch behind the checkpoint and knows nothing of
the rows that were being read first: what had been written would come again as if it were new.
"""

from __future__ import annotations

import re

from headrace.errors import HeadraceError, Kind

FIRST = (4, 2)
"""The first version whose sources are told where the query stands."""


def is_served(version: str) -> bool:
    """Whether a PySpark of this version, like `4.3.0` or `4.4.0.dev1`, carries the sources."""
    return tuple(map(int, re.findall(r"\d+", version)[:2])) >= FIRST


def check_version(version: str, name: str) -> None:
    """Refuse a PySpark that is too old for the source `name`.

    Raises:
        HeadraceError: DEPENDENCY.
    """
    if not is_served(version):
        first = ".".join(map(str, FIRST))
        raise HeadraceError(
            Kind.DEPENDENCY,
            f"{name} needs PySpark {first} or newer, and this is PySpark {version}, which tells a "
            "source too little for going on from a checkpoint",
            f"Run the program with PySpark {first} or newer, for example: pip install 'pyspark>={first}'.",
        )
