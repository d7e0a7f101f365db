"""Keep PostgreSQL's tables as tables of a lake."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.mirror.batches import into

__all__ = ["into"]


def __getattr__(name: str) -> object:
    """What needs PySpark and deltalake is loaded when it is asked for."""
    if name == "into":
        from headrace.mirror.batches import into  # noqa: PLC0415

        return into
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
