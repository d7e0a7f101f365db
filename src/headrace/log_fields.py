"""Give every log line of a block the same fields, for example the batch that the lines belong to."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from types import MappingProxyType

_FIELDS: ContextVar[Mapping[str, object]] = ContextVar("log_fields", default=MappingProxyType({}))


@contextlib.contextmanager
def log_fields(**fields: object) -> Iterator[None]:
    """Add fields to the lines that this thread logs until the block ends; None adds no field.

    Args:
        fields: `batch` (Spark's number of it), `position` (an LSN as text), `code` (of an error).
    """
    token = _FIELDS.set(
        {**_FIELDS.get(), **{name: value for name, value in fields.items() if value is not None}}
    )
    try:
        yield
    finally:
        _FIELDS.reset(token)


class LogFieldsFilter(logging.Filter):
    """Puts the fields of `log_fields` on each record; those that the record has already stay."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields; every record passes."""
        for name, value in _FIELDS.get().items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True
