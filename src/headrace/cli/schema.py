"""`headrace schema`: show an index's mapping, SQL and routes, types of documents, or the JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from headrace.assembly.lowering import plan_document
from headrace.assembly.read_strategies import strategy_for_blocks
from headrace.assembly.statement import keys_statements, range_statement
from headrace.cli import terminal
from headrace.cli.context import CommandContext
from headrace.errors import HeadraceError, Kind
from headrace.model.layout import indented
from headrace.model.names import CtidRange
from headrace.model.units import quantity
from headrace.pipeline.project import Project, find_index
from headrace.postgres.session import ReadSession
from headrace.resolution import required_columns
from headrace.resolution.paths import Path as Way
from headrace.resolution.paths import find_paths
from headrace.resolution.plan import path_statement
from headrace.schema.json_schema import schema_of_files
from headrace.sinks.opensearch import mapping
from headrace.tools.document_types.generate import Language, generate_types
from headrace.tools.preview import read_complete

_RANGE_BLOCKS = 1024
"""Blocks of one range of a backfill."""


@dataclass(frozen=True, slots=True)
class ShownRoute:
    """How a changed row of a table leads to documents.

    Attributes:
        table: the table of the changed row.
        field: the dotted place in the document; empty for the root.
        columns: the columns of the changed row whose old and new values are used.
        statement: the query from these columns to the document's key; None where they are the key.
    """

    table: str
    field: str
    columns: tuple[str, ...]
    statement: str | None


@dataclass(frozen=True, slots=True)
class Shown:
    """What a schema file defines; without the database only what follows from the file.

    Attributes:
        index: the name of the index.
        table: the root table.
        primary_key: the columns of the primary key.
        hash: the hash of the definition.
        tables: all tables that documents read.
        mapping: the body with which the search index is created.
        keys: the statement that reads documents by keys, one text array for each part of the key.
        more_keys: statements for more keys, by the number of keys from which they are used.
        range: the statement that backfills a range of the root table.
        routes: how changed rows lead to documents.
        old_rows: the columns that old rows of each table must carry in the log.
    """

    index: str
    table: str
    primary_key: tuple[str, ...]
    hash: str
    tables: tuple[str, ...]
    mapping: dict[str, Any]
    keys: str | None = None
    more_keys: dict[int, str] = field(default_factory=dict)
    range: str | None = None
    routes: tuple[ShownRoute, ...] = ()
    old_rows: dict[str, tuple[str, ...]] = field(default_factory=dict)


def print_json_schema() -> None:
    """Print the JSON Schema of schema files."""
    terminal.data(schema_of_files())


def print_types(
    context: CommandContext, indexes: Sequence[str], language: Language | None, *, offline: bool
) -> None:
    """Print the types of documents as a module; of all indexes where none is named.

    Raises:
        HeadraceError: USAGE; what is wrong with the files, or keeps the tables from being read.
    """
    if language is None:
        remedy = "Add --language python, or typescript."
        raise HeadraceError(Kind.USAGE, "no language is named for the types", remedy)
    terminal.out.file.write(generate_types(context.open_project(), language, indexes, offline=offline))


def show_schema(context: CommandContext, indexes: Sequence[str], *, offline: bool) -> None:
    """Print mapping, statements and routes of an index; `offline` only what needs no catalog.

    Raises:
        HeadraceError: what is wrong with the files, or keeps the index from being read.
    """
    if len(indexes) > 1:
        raise HeadraceError(Kind.USAGE, "one index is shown at a time", "Name one of them.")
    project = context.open_project()
    spec = find_index(project, *indexes or [""])
    shown = Shown(
        index=spec.name,
        table=str(spec.table),
        primary_key=spec.primary_key,
        hash=spec.hash,
        tables=tuple(str(table) for table in sorted(spec.tables())),
        mapping=mapping(spec, project.primary.index_options(spec.name)),
    )
    if not offline:
        shown = _with_catalog(project, shown)
    if context.as_json:
        terminal.data(asdict(shown))
    else:
        _print(shown)


def _with_catalog(project: Project, shown: Shown) -> Shown:
    with ReadSession(project.database()) as session:
        spec, catalog = read_complete(session, project.specs[shown.index])
    plan = plan_document(spec, catalog)
    (_, statement), *larger = keys_statements(plan).items()
    needs = required_columns([spec], catalog)
    return replace(
        shown,
        primary_key=spec.primary_key,
        keys=statement,
        more_keys=dict(larger),
        # The bounds are parameters, so every range has this statement.
        range=range_statement(plan, CtidRange(0, 0), strategy_for_blocks(plan, _RANGE_BLOCKS)),
        routes=tuple(_route(way) for way in find_paths(spec, catalog)),
        old_rows={str(table): needs[table].columns for table in sorted(needs)},
    )


def _route(path: Way) -> ShownRoute:
    columns = tuple(column.name for column in path.lead)
    return ShownRoute(str(path.table), path.field, columns, path_statement(path))


def _print(shown: Shown) -> None:
    key = ", ".join(shown.primary_key) or "its primary key"
    terminal.sql(f"{shown.index}: a document for each row of {shown.table}, its id from {key}")
    terminal.sql(f"reads {', '.join(shown.tables)}")
    _head("the search index")
    terminal.sql(indented(json.dumps(shown.mapping, ensure_ascii=False)))
    if shown.keys is None:
        terminal.say("SQL and routes need the database: without --offline they are shown too")
        return
    _head("documents by their keys ($1, …: a text array for each part of the key)")
    terminal.sql(shown.keys)
    for count, statement in shown.more_keys.items():
        _head(f"documents by {quantity(count, 'key')} and more")
        terminal.sql(statement)
    _head("a changed row leads to documents")
    fields_by_route: dict[ShownRoute, dict[str, None]] = {}
    for route in shown.routes:
        fields_by_route.setdefault(replace(route, field=""), {})[route.field or "the document"] = None
    for route, fields in fields_by_route.items():
        places = f" in {', '.join(fields)}"
        ending = "is the key, without a query" if route.statement is None else "leads there by:"
        terminal.sql(f"{route.table}{places}: {', '.join(route.columns)} {ending}")
        if route.statement is not None:
            terminal.sql(route.statement, "    ")
    _head("old rows must carry in the log")
    for table, columns in shown.old_rows.items():
        terminal.sql(f"{table}: {', '.join(columns)}")


def _head(text: str) -> None:
    terminal.out.print()
    terminal.out.print(text, style="bold", markup=False)
