"""Typed options of `postgres_cdc` for Python programs, checked before Spark sees them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import ConfigDict, PrivateAttr, SecretStr, ValidationError, model_validator
from pydantic.functional_validators import ModelWrapValidatorHandler

from headrace.datasources.options import named_values, option_error
from headrace.datasources.source_options import CdcOptions, SnapshotOptions
from headrace.model.table_pattern import format_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NAME = "PostgresSource"
_STREAM, _BATCH = "postgres_cdc", "postgres_snapshot"
Names = str | Sequence[str]
ByTable = str | Sequence[str] | Mapping[str, Names]


class PostgresSource(CdcOptions):
    """The options of `postgres_cdc` as one immutable value; docs/reference/spark-options.md describes each.

    Names are those of the options in snake_case; values are Python values or the options' text. Passwords and
    the URL are not shown by `repr`.

    Raises:
        HeadraceError: USAGE, with the option's name; CONFIG where the connection string is not usable.
    """

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)
    _texts: dict[str, Any] = PrivateAttr(default_factory=dict)

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            slot: str,
            url: str | None = None,
            host: str | None = None,
            port: int | str | None = None,
            database: str | None = None,
            user: str | None = None,
            password: str | None = None,
            password_command: str | None = None,
            sslmode: str | None = None,
            sslrootcert: str | None = None,
            sslcert: str | None = None,
            sslkey: str | None = None,
            sslpassword: str | None = None,
            channel_binding: str | None = None,
            target_session_attrs: str | None = None,
            tables: Names = (),
            columns: ByTable = (),
            exclude_columns: ByTable = (),
            where: str | Mapping[str, str] = "",
            publication: str = "headrace",
            create_slot: bool = True,
            temporary_slot: bool = False,
            envelope: Literal["rows", "changes", "elements"] | None = None,
            table_keys: ByTable = (),
            source_id: str | None = None,
            starting_offsets: str = "snapshot",
            bootstrap: str = "snapshot",
            fail_on_data_loss: bool = True,
            upgraded_from: str | None = None,
            new_tables: Literal["refuse", "follow", "snapshot"] = "refuse",
            on_schema_change: Literal["fail", "rescue", "ignore"] = "fail",
            on_unlogged_change: Literal["fail", "snapshot", "keep", "ignore"] = "fail",
            confirm_folder: str | None = None,
            pre_images: bool = False,
            metadata_prefix: str = "_",
            unchanged_toast: Literal["reread", "old", "mark"] = "reread",
            max_bytes_per_trigger: int | str = "128m",
            max_rows_per_trigger: int | None = None,
            rows_per_partition: int = 20_000,
            buffer_bytes: int | str = "256m",
            backlog_bytes: int | str = "64m",
        ) -> None: ...

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, raw: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        given = {name: _text(name, value) for name, value in dict(raw).items() if value is not None}
        texts = named_values(cls, given, _NAME)
        try:
            source = handler(texts)
        except ValidationError as error:
            raise option_error(cls, error, _NAME) from None
        source._texts = texts  # noqa: SLF001 - its own
        return source

    def options(self) -> dict[str, str]:
        """Return the given options as text, with names in camelCase, for `.options(**…)`; includes passwords.

        Another program can use them unchanged.
        """
        return {name: str(text) for name, text in self._texts.items()}

    def stream(self, spark: SparkSession) -> DataFrame:
        """Return the streaming DataFrame: `spark.readStream.format("postgres_cdc")` with these options."""
        return spark.readStream.format(_STREAM).options(**self.options()).load()

    def read(self, spark: SparkSession) -> DataFrame:
        """Return the rows that the one table has now, read with `spark.read.format("postgres_snapshot")`.

        Raises:
            HeadraceError: USAGE, where not exactly one table is named.
        """
        known = {field.alias or name for name, field in SnapshotOptions.model_fields.items()}
        options = {name: value for name, value in self.options().items() if name in known}
        if self.one_table is not None and self.conditions:
            options["where"] = self.conditions[self.one_table]
        return spark.read.format(_BATCH).options(**options).load()


def _text(name: str, value: Any) -> Any:
    """Convert a Python value to the option's text; other values are left to the model."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return json.dumps({table: _text(name, names) for table, names in value.items()})
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(map(str, value) if name == "tables" else map(format_name, value))
    return str(value) if isinstance(value, int | Path) else value
