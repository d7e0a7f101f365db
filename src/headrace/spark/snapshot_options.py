"""Which options does `postgres_snapshot` take, and what does each mean?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator
from pydantic.alias_generators import to_camel

from headrace.errors import HeadraceError, Kind
from headrace.model import TableName
from headrace.model.nearest import meant
from headrace.postgres.connection import with_defaults
from headrace.snapshot.planning import PARTITION_BYTES

FORMAT = "postgres_snapshot"
_SIZE = re.compile(r"(\d+)\s*([kmg]?)b?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_PART = r'\s*(?:"((?:[^"]|"")+)"|([^".,\s]+))\s*'
_TABLE = re.compile(rf"{_PART}(?:\.{_PART})?")
_SNAPSHOT = re.compile(r"[0-9A-F]{8}-[0-9A-F]{8}-[0-9]+")


class SnapshotOptions(BaseModel):
    """The options of `postgres_snapshot`."""

    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", frozen=True, hide_input_in_errors=True
    )

    url: SecretStr = Field(description="the database, as libpq takes it: a URL or keywords")
    tables: TableName = Field(description='the table or view to read; `.load("public.users")` is the same')
    columns: tuple[str, ...] = Field((), description="comma-separated; all if absent")
    exclude_columns: tuple[str, ...] = Field((), description="comma-separated; columns to leave out")
    where: str | None = Field(None, description="SQL: which rows; it is put into the statement as it is")
    snapshot_id: str | None = Field(None, description="of an exported snapshot that the rows belong to")
    num_partitions: int | None = Field(None, gt=0, description="into how many tasks the table is cut, about")
    partition_bytes: int = Field(
        PARTITION_BYTES, gt=0, description="how much of the table's file one task reads, about"
    )
    batch_bytes: int = Field(4 << 20, gt=0, description="how much of a task's rows is in memory at once")

    @field_validator("tables", mode="before")
    @classmethod
    def _read_table(cls, given: object) -> object:
        if not isinstance(given, str):
            return given
        found = _TABLE.fullmatch(given)
        if found is None:
            raise ValueError("it is not the name of one table: write schema.table")
        parts = [_unquoted(found[1], found[2]), _unquoted(found[3], found[4])]
        return TableName(*parts) if parts[1] else TableName("public", parts[0])

    @field_validator("columns", "exclude_columns", mode="before")
    @classmethod
    def _split(cls, given: object) -> object:
        if not isinstance(given, str):
            return given
        found = [_unquoted(*match.groups()) for match in re.finditer(rf"{_PART}(?:,|$)", given)]
        if len(found) != len(re.findall(r',(?=(?:[^"]*"[^"]*")*[^"]*$)', given)) + 1:
            raise ValueError('it is no list of columns: write a, b, "the third"')
        return tuple(found)

    @field_validator("partition_bytes", "batch_bytes", mode="before")
    @classmethod
    def _parse_size(cls, given: object) -> object:
        match = _SIZE.fullmatch(given.strip()) if isinstance(given, str) else None
        return given if match is None else int(match[1]) * _UNITS[match[2].lower()]

    @field_validator("snapshot_id")
    @classmethod
    def _check_snapshot(cls, given: str | None) -> str | None:
        if given is not None and not _SNAPSHOT.fullmatch(given):
            raise ValueError("it is not what pg_export_snapshot() gives")
        return given

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: SecretStr) -> SecretStr:
        with_defaults(url.get_secret_value())
        return url


def _unquoted(quoted: str | None, plain: str | None) -> str:
    return (quoted or "").replace('""', '"') or plain or ""


def read_options(given: Mapping[str, str]) -> SnapshotOptions:
    """The options of a reading, checked.

    Raises:
        HeadraceError: USAGE, with the option's name; a wrong value is never shown.
    """
    known = {to_camel(name).lower(): to_camel(name) for name in SnapshotOptions.model_fields}
    values: dict[str, Any] = {}
    for name, value in given.items():
        plain = "tables" if name.lower() == "path" else name.lower().replace("_", "")
        if plain not in known:
            raise HeadraceError(Kind.USAGE, f"{FORMAT} has no option {name!r}", meant(plain, known.values()))
        values[known[plain]] = value
    try:
        return SnapshotOptions.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        raise HeadraceError(Kind.USAGE, f"option {name} of {FORMAT}: {first['msg']}") from None
