"""Options that both sources have in common, and how options are read.

Names are camelCase and case-insensitive, and snake_case is accepted; an unknown one is refused with the
nearest known name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from headrace.errors import HeadraceError, Kind
from headrace.model.names import TableName
from headrace.model.suggestion import meant
from headrace.model.table_pattern import TablePattern, one_table, parse_names, parse_tables
from headrace.postgres.address import with_parameters
from headrace.postgres.connection import with_defaults
from headrace.postgres.password import split_command

_SIZE = re.compile(r"(\d+)\s*([kmg]?)b?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def _parse_size(value: object) -> object:
    """Parse a number of bytes like `128m`; other values are returned unchanged."""
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    return value if match is None else int(match[1]) * _UNITS[match[2].lower()]


Bytes = Annotated[int, BeforeValidator(_parse_size)]
"""A size, which may be written like `128m`."""

_PLACE = ("host", "port", "database")
_PARAMETERS = (
    *("host", "port", "database", "user", "password", "sslmode", "sslrootcert", "sslcert", "sslkey"),
    *("sslpassword", "channel_binding", "target_session_attrs"),
)
"""The options that are parameters of libpq."""


class DatabaseOptions(BaseModel):
    """Options for the database and its tables, common to both sources."""

    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", frozen=True, hide_input_in_errors=True
    )

    url: SecretStr | None = Field(
        None, description="the database, as libpq takes it (a URL or keywords), or a JDBC URL"
    )
    host: str | None = Field(None, description="without `url`: the server; `localhost` if absent")
    port: str | None = Field(None, pattern=r"^\d+(,\d+)*$", description="without `url`: 5432 if absent")
    database: str | None = Field(None, description="without `url`: the database's name")
    user: str | None = Field(None, description="who connects, in the place of the user in `url`")
    password: SecretStr | None = Field(None, description="in the place of the password in `url`")
    password_command: SecretStr | None = Field(
        None, description="a program that prints the password at each connect, or `iam:aws`, `iam:azure`, …"
    )
    sslmode: str | None = Field(
        None, description="`disable`, `prefer`, `require`, `verify-ca` or `verify-full`, as libpq means them"
    )
    sslrootcert: str | None = Field(None, description="file with the certificates that are trusted")
    sslcert: str | None = Field(None, description="file with the client's certificate")
    sslkey: str | None = Field(None, description="file with the client's key")
    sslpassword: SecretStr | None = Field(None, description="for the client's key")
    channel_binding: str | None = Field(None, description="`prefer`, `require` or `disable`")
    target_session_attrs: str | None = Field(None, description="which of several hosts is meant")
    tables: tuple[TablePattern, ...] = Field(
        (), description='comma-separated, `*` stands for any text; `load("public.users")` is the same'
    )
    columns: dict[TableName | None, tuple[str, ...]] = Field(
        {}, description='comma-separated, of one table; of several: JSON, `{"public.users": ["id"]}`'
    )
    exclude_columns: dict[TableName | None, tuple[str, ...]] = Field(
        {}, description="the same, for columns that are left out"
    )

    @field_validator("tables", mode="before")
    @classmethod
    def _parse_tables(cls, value: object) -> object:
        return parse_tables(value) if isinstance(value, str) else value

    @field_validator("columns", "exclude_columns", "table_keys", mode="before", check_fields=False)
    @classmethod
    def _parse_columns(cls, value: object) -> object:
        found = parse_by_table(value) if isinstance(value, str) else value
        if not isinstance(found, Mapping):
            raise ValueError('write names, or JSON: {"public.users": ["id"]}')  # noqa: TRY004 - pydantic's way
        return {
            table: parse_names(names) if isinstance(names, str) else names for table, names in found.items()
        }

    @model_validator(mode="after")
    def _check_place(self) -> Self:
        if self.url is None and self.database is None:
            raise ValueError("url is missing: name the database by url, or by host, port, database and user")
        named = [name for name in _PLACE if getattr(self, name) is not None]
        if self.url is not None and named:
            raise ValueError(f"url and {named[0]} both say where the database is: give one of them")
        if self.password_command is not None:
            _check_usable("passwordCommand", lambda: split_command(_secret_text(self.password_command) or ""))
        if self.url is not None:
            _check_usable("url", lambda: with_defaults(_secret_text(self.url) or ""))
        with_defaults(self.connection)
        return self

    @property
    def connection(self) -> str:
        """Return one connection string of all options; it contains the password.

        Raises:
            HeadraceError: CONFIG, where it is not usable; the text never shows it.
        """
        given = {name: _secret_text(getattr(self, name)) for name in _PARAMETERS}
        given["dbname"] = given.pop("database")
        command = _secret_text(self.password_command)
        return with_parameters(
            _secret_text(self.url) or "",
            {name: value for name, value in given.items() if value is not None},
            () if command is None else split_command(command),
        )


def _check_usable(option: str, parse: Callable[[], object]) -> None:
    """Name the option whose value cannot be used.

    Raises:
        HeadraceError: CONFIG; the text never shows the value.
    """
    try:
        parse()
    except HeadraceError as error:
        # Without its cause, whose text might have the value.
        raise HeadraceError(error.kind, f"the option {option}: {error.cause}", error.remedy) from None


_Options = TypeVar("_Options", bound=DatabaseOptions)


def read_options(model: type[_Options], raw: Mapping[str, str], format_name: str) -> _Options:
    """Read and check the options of a query.

    Args:
        model: the options that the format takes.
        raw: as Spark passes them.
        format_name: the format's name in messages.

    Raises:
        HeadraceError: USAGE, with the option's name; CONFIG where the connection string is not usable. A
            wrong value is never shown.
    """
    try:
        return model.model_validate(named_values(model, raw, format_name))
    except ValidationError as error:
        raise option_error(model, error, format_name) from None


def named_values(model: type[DatabaseOptions], raw: Mapping[str, Any], format_name: str) -> dict[str, Any]:
    """Return the values under the options' own names, however the names are written.

    Raises:
        HeadraceError: USAGE, with a name that is not known, or given twice.
    """
    known = {_fold(name): to_camel(name) for name in model.model_fields}
    values: dict[str, Any] = {}
    for name, value in raw.items():
        plain = _fold("tables" if name.lower() == "path" else name)
        if plain not in known:
            hint = meant(name, map(to_camel, model.model_fields))
            raise HeadraceError(Kind.USAGE, f"{format_name} has no option {name!r}", hint)
        if known[plain] in values:
            raise HeadraceError(
                Kind.USAGE, f"the option {known[plain]} of {format_name} is given twice", "Give it once."
            )
        values[known[plain]] = value
    return values


def option_error(model: type[DatabaseOptions], error: ValidationError, format_name: str) -> HeadraceError:
    """Return the error for the first wrong option, without its value."""
    # An input may be a password.
    first = error.errors(include_input=False, include_url=False)[0]
    place, text = first["loc"], first["msg"].removeprefix("Value error, ")
    if not place:
        return HeadraceError(Kind.USAGE, f"the options of {format_name}: {text}")
    described = next(
        (field.description for name, field in model.model_fields.items() if to_camel(name) == place[0]), None
    )
    means = f"It means: {described}." if described else ""
    if text == "Field required":
        return HeadraceError(Kind.USAGE, f"{format_name} needs the option {place[0]}", means)
    return HeadraceError(Kind.USAGE, f"the option {place[0]} of {format_name}: {text}", means)


def parse_by_table(text: str) -> dict[TableName | None, Any]:
    """Parse an option as JSON by table, or as text for the only table (None).

    Raises:
        ValueError: it begins like JSON and is invalid, or names no table.
    """
    if not text.lstrip().startswith("{"):
        return {None: text}
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is no JSON: {error}") from error
    return {one_table(name): value for name, value in found.items()}


def _fold(name: str) -> str:
    return name.lower().replace("_", "")


def _secret_text(value: str | SecretStr | None) -> str | None:
    return value.get_secret_value() if isinstance(value, SecretStr) else value
