"""Keep secrets out of logs, messages and tracebacks."""

from __future__ import annotations

import hmac
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

_SHOWN = "********"


class Secret:
    """A text that only `reveal` returns; printing it shows asterisks.

    It pickles with its value, so that it reaches a Spark worker.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the text itself; call it where the text is used, nowhere else."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret('{_SHOWN}')"

    def __str__(self) -> str:
        return _SHOWN

    def __format__(self, specification: str) -> str:
        return format(_SHOWN, specification)

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        # In constant time: how long a comparison takes tells how much of a guess is right.
        return isinstance(other, Secret) and hmac.compare_digest(self._value.encode(), other._value.encode())

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickle has the text: Spark sends it to executors over its own connections.
        return Secret, (self._value,)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(
            cls,
            core_schema.str_schema(strict=True, min_length=1),
            serialization=core_schema.plain_serializer_function_ser_schema(str),
        )
