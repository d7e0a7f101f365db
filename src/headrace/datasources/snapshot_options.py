"""The options of the source `postgres_snapshot`."""

from __future__ import annotations

import re
from typing import Self

from pydantic import Field, field_validator, model_validator

from headrace.datasources.options import DatabaseOptions, parse_size
from headrace.model import TableName
from headrace.snapshot.planning import PARTITION_BYTES

_SNAPSHOT = re.compile(r"[0-9A-F]{8}-[0-9A-F]{8}-[0-9]+")


class SnapshotOptions(DatabaseOptions):
    """The options of `postgres_snapshot`."""

    where: str | None = Field(
        None, description="SQL that says which rows are read; it is put into the statement as it is"
    )
    snapshot_id: str | None = Field(
        None, description="of an exported snapshot, the moment that all rows are read as of"
    )
    num_partitions: int | None = Field(None, gt=0, description="into how many tasks the table is cut, about")
    partition_bytes: int = Field(
        PARTITION_BYTES, gt=0, description="without `numPartitions`: how much of its file a task reads, about"
    )
    batch_bytes: int = Field(8 << 20, gt=0, description="how much of its rows a task holds at once, about")

    @field_validator("partition_bytes", "batch_bytes", mode="before")
    @classmethod
    def _parse_size(cls, value: object) -> object:
        return parse_size(value)

    @field_validator("snapshot_id")
    @classmethod
    def _check_snapshot(cls, value: str | None) -> str | None:
        if value is not None and not _SNAPSHOT.fullmatch(value):
            raise ValueError("it is not what pg_export_snapshot() gives")
        return value

    @model_validator(mode="after")
    def _check_table(self) -> Self:
        if len(self.tables) != 1 or self.tables[0].exact is None:
            raise ValueError('name one table, by tables or as in load("public.users")')
        return self

    @property
    def table(self) -> TableName:
        """Return the table."""
        exact = self.tables[0].exact
        assert exact is not None
        return exact
