"""Which options does the source take, and what does each mean?

Names are camelCase and case-insensitive; an unknown one is refused with the nearest known name.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator
from pydantic.alias_generators import to_camel

from headrace.catalog.needs import Needs, from_text
from headrace.errors import HeadraceError, Kind
from headrace.model import TableName
from headrace.postgres.connection import with_defaults

_SIZE = re.compile(r"(\d+)\s*([kmg]?)b?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class CdcOptions(BaseModel):
    """The options of `postgres_cdc`."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True)

    url: SecretStr = Field(description="the database, as libpq takes it: a URL or keywords")
    slot_name: str = Field(description="the replication slot; the source is its only reader")
    publication_name: str = Field("headrace", description="the publication that says which tables are sent")
    tables: tuple[TableName, ...] = Field((), description="comma-separated; all of the publication if absent")
    create_slot: bool = Field(default=True, description="create slot and publication where they are missing")
    max_bytes_per_trigger: int = Field(128 << 20, gt=0, description="how much one batch may hold")
    max_rows_per_trigger: int | None = Field(None, gt=0, description="how many changes one batch may hold")
    rows_per_partition: int = Field(20_000, gt=0, description="a batch is split into tasks of this size")
    buffer_bytes: int = Field(256 << 20, gt=0, description="how much may wait in the driver's memory")
    progress: bool = Field(default=False, description="add a row with the batch's position to each partition")
    needed_columns: dict[str, dict[str, tuple[str, ...]]] = Field(
        {}, description="JSON, schema → table → columns that old rows must carry, else the query fails"
    )
    document_needs: str | None = Field(
        None, description="internal: what documents need of each table, see headrace.catalog.needs"
    )
    continues: dict[str, str | int] | None = Field(
        None, description="JSON: system, timeline, database and lsn of what was made of this log before"
    )
    trouble_file: Path | None = Field(None, description="says what keeps the source from reading")

    @field_validator("tables", mode="before")
    @classmethod
    def _split_tables(cls, given: object) -> object:
        if not isinstance(given, str):
            return given
        return tuple(_table(part) for part in given.split(",") if part.strip())

    @field_validator("needed_columns", "continues", mode="before")
    @classmethod
    def _parse_json(cls, given: object) -> object:
        return json.loads(given) if isinstance(given, str) else given

    @field_validator("max_bytes_per_trigger", "buffer_bytes", mode="before")
    @classmethod
    def _parse_size(cls, given: object) -> object:
        match = _SIZE.fullmatch(given.strip()) if isinstance(given, str) else None
        return given if match is None else int(match[1]) * _UNITS[match[2].lower()]

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: SecretStr) -> SecretStr:
        with_defaults(url.get_secret_value())
        return url

    @property
    def needs(self) -> Needs | None:
        """`document_needs` by table and column."""
        return None if self.document_needs is None else from_text(self.document_needs)

    @property
    def needed(self) -> dict[TableName, frozenset[str]]:
        """`needed_columns` by table."""
        return {
            TableName(schema, table): frozenset(columns)
            for schema, tables in self.needed_columns.items()
            for table, columns in tables.items()
        }


def _table(text: str) -> TableName:
    parts = [part.strip() for part in text.split(".")]
    if not all(parts) or len(parts) > 2:  # noqa: PLR2004
        raise ValueError(f"{text.strip()!r} is no table name: write schema.table")
    return TableName(*parts) if len(parts) == 2 else TableName("public", parts[0])  # noqa: PLR2004


def read_options(given: Mapping[str, str]) -> CdcOptions:
    """The options of a query, checked.

    Raises:
        HeadraceError: USAGE, with the option's name; a wrong value is never shown.
    """
    known = {to_camel(name).lower(): to_camel(name) for name in CdcOptions.model_fields}
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name.lower() == "path":
            values.setdefault("tables", value)
            continue
        plain = name.lower().replace("_", "")
        if plain not in known:
            near = difflib.get_close_matches(plain, known, n=1)
            hint = f"Did you mean {known[near[0]]}?" if near else f"Known: {', '.join(known.values())}."
            raise HeadraceError(Kind.USAGE, f"postgres_cdc has no option {name!r}", hint)
        values[known[plain]] = value
    try:
        return CdcOptions.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        raise HeadraceError(Kind.USAGE, f"option {name} of postgres_cdc: {first['msg']}") from None
