"""Define `[mirror]` of a deployment file: the tables that are kept in a lake."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, ByteSize, Field, ValidationInfo, model_validator

from headrace.config.file_model import FileModel
from headrace.config.value import PublicationName, SlotName, Value, below_folder
from headrace.model.lake_partition import Partition, parse_partition
from headrace.model.names import TableName
from headrace.model.table_pattern import TablePattern, parse_tables

_INTERVAL = re.compile(r"(\d{1,6})(ms|s|m|h|d)")
_STORES = ("s3://", "gs://", "abfss://", "az://")
CATALOG = "catalog:"
"""What a location begins with that is a catalog's name."""
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


Format = Literal["delta", "iceberg"]
Mode = Literal["current", "history", "changes"]
Engine = Literal["local", "spark"]
Mask = Literal["sha256", "redact", "null"]
OnValue = Literal["null", "text", "wait"]
LakeType = Literal["text", "timestamptz"]
OnError = Literal["reload", "wait"]


def _check_patterns(value: tuple[str, ...]) -> tuple[str, ...]:
    for text in value:
        parse_tables(text)
    return value


def _check_partitions(value: tuple[str, ...]) -> tuple[str, ...]:
    if len({parse_partition(text).name for text in value}) < len(value):
        raise ValueError("name each partition once")
    return value


def _check_location(value: str, info: ValidationInfo) -> str:
    if is_url(value) and not value.startswith(_STORES):
        raise ValueError(f"must be a folder, or begin with one of {', '.join(_STORES)}")
    return str(below_folder(Path(value), info)) if is_folder(value) else value


def _check_interval(value: str) -> str:
    _seconds(value)
    return value


def _check_retention(value: str) -> str:
    if _seconds(value) < _SECONDS["h"]:
        raise ValueError("must be an hour at least: files of a commit that is under way are as old")
    return value


class MirroredTables(FileModel):
    """`[[mirror.tables]]`: some tables."""

    tables: Annotated[tuple[str, ...], Field(min_length=1, strict=False), AfterValidator(_check_patterns)]
    """Their names, as in `"sales.orders"`; `*` stands for any text. A table belongs to the first part that
    names it."""
    exclude: Annotated[tuple[str, ...], Field(strict=False), AfterValidator(_check_patterns)] = ()
    """Names and patterns of tables that do not belong to this part, as in `"public.tmp_*"`."""
    mode: Mode = "current"
    """`current`: the rows as they are; `history`: every version of each row; `changes`: every change."""
    columns: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """The columns that are mirrored; none named: all, those that come later too."""
    exclude_columns: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Columns that are not mirrored."""
    where: Annotated[str, Field(min_length=1)] | None = None
    """SQL that says which rows are mirrored. It becomes a row filter of the publication (PostgreSQL 15), so
    it may read only columns of the replica identity."""
    partition_by: Annotated[tuple[str, ...], Field(strict=False), AfterValidator(_check_partitions)] = ()
    """How the lake's tables are partitioned: a column, or `year`, `month`, `day` or `hour` of one, as in
    `"day(placed_at)"`. Every table of the part must have it."""
    soft_delete: bool = False
    """Whether rows that are deleted stay in a table of `current`: `_is_deleted` and `_deleted_at` say so."""
    masks: dict[str, Mask] = Field(default_factory=dict)
    """Columns whose values the lake must not have: `sha256` puts a salted hash of the text in their place,
    `redact` three asterisks, `null` nothing. Every table of the part must have them."""

    on_value: dict[str, OnValue] = Field(default_factory=dict)
    """What becomes of a value that the column's type in the lake does not hold, such as NaN in a
    `numeric(10,2)`. With `wait`, the default, the table waits. With `null` the lake has NULL instead, also
    for infinite dates and timestamps. With `text` the whole column is a text in the lake."""
    types: dict[str, LakeType] = Field(default_factory=dict)
    """Types of columns in the lake: `text`: what PostgreSQL prints; `timestamptz`, of a `timestamp`: the
    instant that it is in UTC."""

    on_error: OnError = "reload"
    """What a table that has to wait misses meanwhile: `reload`: it is read again when it can go on; `wait`:
    the slot keeps the log for it, up to `wal_budget` of `[source]`, so that no change is missed."""

    @model_validator(mode="after")
    def _fit_keys_together(self) -> Self:
        if self.columns and self.exclude_columns:
            raise ValueError("columns and exclude_columns: name one of them")
        for pattern in self.patterns:
            if pattern.exact is not None and self._is_excluded(pattern.exact):
                raise ValueError(f"exclude: it matches {pattern.exact}, which tables names itself")
        self._check_columns_once()
        if self.soft_delete and self.mode != "current":
            raise ValueError(f'soft_delete: mode "{self.mode}" keeps deleted rows anyway; leave it out')
        return self

    def _check_columns_once(self) -> None:
        for name in (*self.types, *self.on_value):
            if name in self.masks:
                raise ValueError(f"masks: the column {name} is masked; leave it out of types and on_value")
        for name in self.types.keys() & self.on_value.keys():
            raise ValueError(f"types and on_value: name the column {name} in one of them")

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """The levels of the lake table's partitions."""
        return tuple(map(parse_partition, self.partition_by))

    @cached_property
    def patterns(self) -> tuple[TablePattern, ...]:
        """The tables' names and patterns."""
        return parse_tables(", ".join(self.tables))

    @cached_property
    def _excluded(self) -> tuple[TablePattern, ...]:
        return parse_tables(", ".join(self.exclude)) if self.exclude else ()

    def _is_excluded(self, table: TableName) -> bool:
        return any(pattern.matches(table) for pattern in self._excluded)

    def _is_named(self, table: TableName) -> bool:
        return any(pattern.matches(table) for pattern in self.patterns)

    def matches(self, table: TableName) -> bool:
        """Tell whether a table belongs to this part, if to no earlier one."""
        return self._is_named(table) and not self._is_excluded(table)

    def excludes(self, table: TableName) -> bool:
        """Tell whether `tables` of this part names a table, and `exclude` takes it out."""
        return self._is_named(table) and self._is_excluded(table)

    def leaves_out(self, column: str) -> bool:
        """Tell whether a column is not mirrored."""
        return column in self.exclude_columns or (bool(self.columns) and column not in self.columns)


class MirrorConfig(FileModel):
    """`[mirror]`: a lake that holds the database's tables."""

    format: Format = "delta"
    """The tables' format."""
    engine: Engine = "local"
    """What brings changes into the tables: `local`: this process, without a jar; `spark`: the Spark session's
    own Delta or Iceberg, on executors; not with the newest PySpark."""
    location: Annotated[str, Field(min_length=1), AfterValidator(_check_location)]
    """A folder, or for Delta a URL of an object store (`s3://`, `gs://`, `abfss://`, `az://`); each table is
    in `SCHEMA/TABLE` there. For Iceberg also `catalog:NAME`: a catalog of PyIceberg's configuration."""
    interval: Annotated[str, AfterValidator(_check_interval)] = "30s"
    """How often changes are written; a shorter one makes more and smaller files."""
    file_size: Annotated[ByteSize, Field(ge=1 << 20)] = Field("128MiB", validate_default=True)
    """The size of data files, about, from 1 MiB on: those of less than half of it are joined, where there are
    20 of them."""
    retention: Annotated[str, AfterValidator(_check_retention)] = "7d"
    """How long files stay that only older versions of a table have; an hour at least."""
    slot: SlotName = "headrace_mirror"
    """The replication slot; lower-case letters, digits and `_`."""
    publication: PublicationName = "headrace_mirror"
    """The publication."""
    mask_salt: Value | None = None
    """What is hashed with each value of a column with the mask `sha256`, before it: a secret, so that nobody
    finds values by trying. `{ env = "NAME" }` reads it from the environment."""
    tables: Annotated[tuple[MirroredTables, ...], Field(min_length=1, strict=False)]
    """Which tables, in one or several parts."""

    @model_validator(mode="after")
    def _fit_keys_together(self) -> Self:
        if self.mask_salt is None and any("sha256" in part.masks.values() for part in self.tables):
            raise ValueError(
                'masks: sha256 needs a mask_salt in [mirror], as in mask_salt = { env = "MASK_SALT" }'
            )
        if self.format == "iceberg":
            self._check_iceberg()
        elif self.location.startswith(CATALOG):
            raise ValueError(f'location = "{self.location}" needs format = "iceberg": Delta has no catalogs')
        return self

    def _check_iceberg(self) -> None:
        if self.location == CATALOG:
            raise ValueError(f'location = "{CATALOG}" lacks the name of a catalog')
        if is_url(self.location):
            raise ValueError(
                f"location: {self.location} has no place for the catalog of Iceberg tables; "
                f'name a catalog whose tables are there: "{CATALOG}NAME"'
            )

    @property
    def interval_seconds(self) -> float:
        """The interval in seconds."""
        return _seconds(self.interval)

    @property
    def retention_seconds(self) -> float:
        """The retention in seconds."""
        return _seconds(self.retention)


def _seconds(text: str) -> float:
    match = _INTERVAL.fullmatch(text)
    if match is None:
        raise ValueError('must be like "500ms", "30s", "5m", "1h" or "7d"')
    return int(match[1]) * _SECONDS[match[2]]


def is_url(location: str) -> bool:
    """Tell whether a location is a URL, not a folder."""
    return "://" in location


def is_folder(location: str) -> bool:
    """Tell whether a location is a folder of this machine."""
    return not is_url(location) and not location.startswith(CATALOG)
