"""Convert a PGSync schema.json, and the environment that it ran in, to the files of a deployment."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headrace.catalog import Catalog, read_catalog
from headrace.catalog.remedies import KINDS
from headrace.config.load import deployment_of
from headrace.config.resolve import resolve_database
from headrace.config.suggestion import holds_password, suggest_slot, unused_name, write_toml_text
from headrace.errors import HeadraceError
from headrace.model.names import TableName
from headrace.postgres.session import ReadSession
from headrace.schema.json_schema import EDITOR_FILE
from headrace.schema.json_schema import schema_text as editor_schema
from headrace.schema.writing import write_comment
from headrace.sinks.opensearch.settings import mappings_of, settings_of
from headrace.tools.convert.notes import Note, Notes
from headrace.tools.convert.pgsync_env import EnvFile, address_of, connection_of, note_rest, read_env, sink_of
from headrace.tools.convert.pgsync_file import PgsyncIndex, read_pgsync
from headrace.tools.convert.pgsync_schema import ConvertedIndex, convert_index
from headrace.tools.convert.schema_text import schema_text
from headrace.tools.convert.transform_file import function_name, module_name, module_text
from headrace.tools.convert.views import TableView, read_views

_LONGEST_FILE_NAME = 100
_OTHERS = "Take that out, and convert again; or write the others into a {}s_file."

PREFIX = "hr_"
"""Keeps the names of both tools apart, until `headrace adopt`."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """What a conversion gives.

    Attributes:
        files: the texts of the files, by name.
        deployments: the names of those that are deployment files.
        notes: what means something else, or is left to do, in the order of the files.
        general: what holds for every index.
    """

    files: Mapping[str, str]
    deployments: tuple[str, ...]
    notes: tuple[Note, ...]
    general: tuple[str, ...]


GENERAL = (
    "Documents have no `_meta`: Headrace finds what a change touches in the database, not in the index.",
    "A list without rows is [], in PGSync null. Lists are in the order of their keys and hold each row once.",
    "Every field has a type; a text has the subfield `.keyword`, as clusters map texts by default.",
)
"""What is otherwise than in PGSync for every index."""


def convert_pgsync(
    schema: Path, env: Path | None, database: str | None, environ: Mapping[str, str]
) -> Conversion:
    """Convert a schema.json.

    Args:
        schema: the file.
        env: PGSync's .env; None: the connections are not known.
        database: the address of the database, whose catalog is read; None: that of `env`.
        environ: the environment; variables of `env` win.

    Raises:
        HeadraceError: CONFIG: a file cannot be read, or is no JSON. CONNECTION, DATABASE, AUTHENTICATION,
            where `database` was named.
    """
    return _PgsyncConverter(schema, env, database, environ).run()


class _PgsyncConverter:
    """The conversion of one schema.json; the arguments are those of `convert_pgsync`."""

    def __init__(
        self, schema: Path, env: Path | None, database: str | None, environ: Mapping[str, str]
    ) -> None:
        self._schema = schema
        self._database = database
        self._notes, self._env_notes = Notes(schema), Notes(env or Path(".env"))
        self._env = None if env is None else read_env(env, self._env_notes)
        self._settings = self._env or EnvFile(Path(".env"))
        self._variables = {**environ, **self._settings.values}
        self._files = {EDITOR_FILE: editor_schema()}

    def run(self) -> Conversion:
        """Convert each database that the indexes name to a deployment."""
        indexes = _named_once(read_pgsync(self._schema, self._variables, self._notes), self._notes)
        sink = sink_of(self._settings, self._env_notes)
        if self._env is not None:
            note_rest(self._env, self._env_notes)
        by_database = _by_database(indexes)
        for name, own in by_database.items():
            if self._database is not None and len(by_database) > 1:
                text = f"one address is given, and the database {name} is another"
                self._notes.left(own[0].line, text, "Name --env alone.")
        only = len(by_database) == 1
        deployments = [
            self._convert_database(name, own, sink, is_only=only) for name, own in by_database.items()
        ]
        notes = (*self._notes.in_file_order(), *self._env_notes.in_file_order())
        return Conversion(self._files, tuple(deployments), notes, GENERAL)

    def _convert_database(
        self, name: str, indexes: Sequence[PgsyncIndex], sink: Mapping[str, Any], *, is_only: bool
    ) -> str:
        """Add the files of a deployment; return the name of its deployment file."""
        source = _source(self._env, name, self._database, self._env_notes)
        catalog, views = self._read_catalog(name, indexes, source)
        config = "headrace.toml" if is_only else _config_name(name, self._files)
        self._files[config] = _deployment_text(self._schema.name, source, sink)
        for index in indexes:
            converted = convert_index(index, catalog, views, self._notes)
            written = _index_files(self._schema.name, index, converted, self._notes)
            self._files |= written
            self._files[config] += _index_text(index, converted, written)
        return config

    def _read_catalog(
        self, name: str, indexes: Iterable[PgsyncIndex], source: Mapping[str, Any]
    ) -> tuple[Catalog | None, dict[TableName, TableView]]:
        """Read the catalog of every table that the indexes of a database name, and their views.

        Without an address and a .env there is no database to ask: types and keys are guessed.

        Raises:
            HeadraceError: why a database that was named cannot be asked; that of a .env is only noted.
        """
        address = self._database or address_of(self._settings, name)
        if self._env is None and not address:
            return None, {}
        wanted = {table for index in indexes for table in index.root.tables()}
        try:
            url = address or resolve_database(deployment_of({"source": source}, self._variables)).reveal()
            with ReadSession(url) as session:
                return _read_tables(session, wanted)
        except HeadraceError as error:
            # A database that was named must answer; a .env may be of another machine.
            if self._database:
                raise
            cause = f"the database cannot be read: {error.cause}"
            self._env_notes.left(1, cause, "Correct the .env, or name --database.")
            return None, {}


def _by_database(indexes: Iterable[PgsyncIndex]) -> dict[str, list[PgsyncIndex]]:
    found: dict[str, list[PgsyncIndex]] = {}
    for index in indexes:
        found.setdefault(index.database, []).append(index)
    return found


def _named_once(indexes: Iterable[PgsyncIndex], notes: Notes) -> list[PgsyncIndex]:
    """Return the indexes under names that Headrace takes; of several with one name only the first."""
    found: dict[str, PgsyncIndex] = {}
    given = list(indexes)
    taken = {index.name for index in given}
    for index in given:
        if index.name in found:
            notes.left(
                index.line,
                f"a second tree of documents for the index {index.name!r} is left out",
                "Give it an index of its own, and an alias over both.",
            )
            continue
        name = _index_name(index, taken - {index.name}, notes)
        taken.add(name)
        found[index.name] = replace(index, name=name)
    return list(found.values())


def _index_name(index: PgsyncIndex, taken: Collection[str], notes: Notes) -> str:
    name = re.sub(r"\W", "_", index.name.lower(), flags=re.ASCII)
    name = unused_name(f"_{name}" if name[:1].isdigit() else name, taken)  # the prefix stands before _
    if name != index.name:
        notes.differs(
            index.lines["index"],
            f"the index {index.name} is called {name} here",
            f"`headrace adopt {name} --name {shlex.quote(index.name)}` gives it the name that readers use.",
        )
    return name


def _source(env: EnvFile | None, name: str, database: str | None, notes: Notes) -> dict[str, Any]:
    connection: Any = {"env": "DATABASE_URL"}
    if env is not None:
        connection = connection_of(env, name, notes)
    elif database is not None and not holds_password(database):
        connection = database
    slot = suggest_slot(name)
    return {"type": "postgres", "connection_url": connection, "slot": slot, "publication": slot}


def _read_tables(session: ReadSession, wanted: set[TableName]) -> tuple[Catalog, dict[TableName, TableView]]:
    """Read tables and views, with the tables that the views read."""
    catalog = read_catalog(session, wanted)
    behind = {base for table in catalog.tables.values() for base in table.reads}
    # A view is read as its table, of which the columns and keys must be known.
    whole = read_catalog(session, wanted | behind) if behind - wanted else catalog
    tables = {name for name, table in whole.tables.items() if table.kind not in KINDS}
    found = [table for table in catalog.tables.values() if table.kind == "v"]
    views = {view.name: tables.intersection(view.reads) for view in found}
    return whole, read_views(session, views) if views else {}


def _index_files(source: str, index: PgsyncIndex, converted: ConvertedIndex, notes: Notes) -> dict[str, str]:
    """Return the files of an index."""
    name = index.name
    comment = f"Documents of the index {index.name}, converted from {source}."
    found = {f"{name}.schema.yml": schema_text(converted.head, comment)}
    setting = {**index.setting, **({"default_pipeline": index.pipeline} if index.pipeline else {})}
    for word, content, check in (
        ("setting", {"index": setting} if setting else {}, settings_of),
        ("mapping", converted.mappings, mappings_of),
    ):
        try:
            if content and check(content):
                found[f"{name}.{word}s.json"] = _json(content)
        except ValueError as error:
            notes.left(
                index.lines[word], f"{word!r} of {index.name} is left out: {error}", _OTHERS.format(word)
            )
    if index.plugins:
        notes.left(
            index.lines["plugins"],
            f"plugins are your own Python code: {', '.join(index.plugins)}",
            f"Fill in their functions in {module_name(index.name)}.py, and name the fields that they add in "
            f"{name}.mappings.json.",
        )
    if converted.steps or index.plugins:
        found[f"{module_name(index.name)}.py"] = module_text(index.name, converted.steps, index.plugins)
    return found


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _config_name(database: str, taken: Collection[str]) -> str:
    """Return a name for the deployment file of one database of several.

    File systems of macOS and Windows take names that differ in case alone for one.
    """
    base = name = re.sub(r"[^\w.-]", "_", database, flags=re.ASCII)[:_LONGEST_FILE_NAME]
    folded = {file.lower() for file in taken}
    number = 1
    while f"headrace.{name}.toml".lower() in folded:
        number += 1
        name = f"{base}_{number}"
    return f"headrace.{name}.toml"


# the deployment file


def _deployment_text(schema: str, source: Mapping[str, Any], sink: Mapping[str, Any]) -> str:
    lines = [
        f"# Converted from {write_comment(schema)} by `headrace convert pgsync`.",
        f'prefix = "{PREFIX}"  # keeps the names apart from those of PGSync, until `headrace adopt`',
        "",
        "[source]",
        *_pairs(source),
        "",
        "[sinks.primary]",
        *_pairs(sink),
    ]
    return "\n".join(lines) + "\n"


def _index_text(index: PgsyncIndex, converted: ConvertedIndex, files: Mapping[str, str]) -> str:
    name = index.name
    keys: dict[str, Any] = {"name": index.name, "schema": f"{name}.schema.yml"}
    for word in ("settings", "mappings"):
        if f"{name}.{word}.json" in files:
            keys[f"{word}_file"] = f"{name}.{word}.json"
    if converted.steps or index.plugins:
        keys["transform"] = f"{module_name(index.name)}:{function_name(index.name)}"
    return "\n".join(["", "[[index]]", *_pairs(keys)]) + "\n"


def _pairs(values: Mapping[str, Any]) -> Iterator[str]:
    return (f"{key} = {_toml(value)}" for key, value in values.items())


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(_pairs(value)) + " }"
    return write_toml_text(value) if isinstance(value, str) else json.dumps(value)
