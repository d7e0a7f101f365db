"""Convert a PGSync schema.json to the files of a deployment."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.catalog import Catalog, read_catalog
from headrace.config.load import load_deployment
from headrace.config.suggestion import (
    suggest_deployment,
    suggest_index,
    suggest_slot,
    unused_name,
    write_toml_text,
)
from headrace.errors import HeadraceError
from headrace.model.names import TableName
from headrace.postgres.session import ReadSession
from headrace.schema.json_schema import EDITOR_FILE
from headrace.schema.json_schema import schema_text as editor_schema
from headrace.schema.writing import write_comment
from headrace.sinks.opensearch.settings import mappings_of, settings_of
from headrace.tools.convert.notes import Note, Notes
from headrace.tools.convert.pgsync_file import PgsyncIndex, read_pgsync
from headrace.tools.convert.pgsync_schema import ConvertedIndex, convert_index
from headrace.tools.convert.schema_text import schema_text
from headrace.tools.convert.transform_file import function_name, module_name, module_text

_OTHERS = "Take that out, and convert again; or write the others into a {}s_file."

CONFIG = "headrace.toml"
"""The name of the deployment file."""

PREFIX = "hr_"
"""Keeps the names of both tools apart, until `headrace adopt`."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """What a conversion gives.

    Attributes:
        files: the texts of the files, by name.
        notes: what means something else, or is left to do, in the order of the file.
        general: what holds for every index.
    """

    files: Mapping[str, str]
    notes: tuple[Note, ...]
    general: tuple[str, ...]


GENERAL = (
    "Documents have no `_meta`: Headrace finds what a change touches in the database, not in the index.",
    "A list without rows is [], in PGSync null. Lists are in the order of their keys and hold each row once.",
    "Every field has a type; a text has the subfield `.keyword`, as clusters map texts by default.",
)
"""What is otherwise than in PGSync for every index."""


def convert_pgsync(
    schema: Path, database: str, sink: str, environ: Mapping[str, str], former: Path | None = None
) -> Conversion:
    """Convert a schema.json.

    Args:
        schema: the file.
        database: the address of the database, whose tables and foreign keys are read.
        sink: the cluster's URL, for the deployment file.
        environ: what `$NAME` in the file stands for.
        former: the deployment file that the new one may replace; its slot and publication stay.

    Raises:
        ErrorGroup: CONFIG; every mistake of the file.
        HeadraceError: CONFIG: the file cannot be read, or is no JSON. CONNECTION, DATABASE, AUTHENTICATION.
    """
    indexes, notes = read_pgsync(schema, environ)
    with ReadSession(database) as session:
        [(database_name,)] = session.query("SELECT current_database()::text")
        own = list(_of_database(indexes, database_name, notes))
        catalog = _read_tables(session, {table for index, _ in own for table in index.nodes.tables()})
    config = (
        f"# Converted from {write_comment(schema.name)} by `headrace convert pgsync`.\n"
        f'prefix = "{PREFIX}"  # keeps the names apart from those of PGSync, until `headrace adopt`\n\n'
        + suggest_deployment(database, {}, opensearch_url=sink, **_names(former, environ, database_name))
    )
    files = {EDITOR_FILE: editor_schema()}
    for name, (index, of_index) in _named_once(own).items():
        converted = convert_index(index, catalog, of_index)
        if converted is not None:
            written = _index_files(schema.name, name, index, converted, of_index)
            files |= written
            config += _index_text(name, written)
    return Conversion({**files, CONFIG: config}, notes.in_file_order(), GENERAL)


def _names(former: Path | None, environ: Mapping[str, str], database: str) -> dict[str, str]:
    """Return slot and publication: of a former deployment file its own, whose slot would keep the log."""
    if former is not None:
        with contextlib.suppress(HeadraceError):
            source = load_deployment(former, environ).source
            return {"slot": source.slot, "publication": source.publication}
    return {"slot": suggest_slot(database)}


_Noted = tuple[PgsyncIndex, Notes]
"""An index, and what takes notes on it."""


def _of_database(indexes: Collection[PgsyncIndex], name: str, notes: Notes) -> Iterator[_Noted]:
    """Yield the indexes of the database that is asked; where the file names only one, it is that."""
    is_only = len({index.database or index.name for index in indexes}) == 1
    for number, index in enumerate(indexes):
        database = index.database or index.name
        if is_only or database == name:
            yield index, notes.below(number)
        else:
            notes.below(number).left(
                f"the index {index.name} is of the database {database}: it is left out",
                "Convert again with the address of that database, into another --folder.",
            )


def _read_tables(session: ReadSession, wanted: set[TableName]) -> Catalog:
    """Read tables, with those that views among them read."""
    catalog = read_catalog(session, wanted)
    bases = {base for table in catalog.tables.values() for base in table.reads}
    return read_catalog(session, wanted | bases) if bases - wanted else catalog


def _named_once(indexes: Collection[_Noted]) -> dict[str, _Noted]:
    """Return the indexes by names that Headrace takes; of several with one name only the first."""
    found: dict[str, _Noted] = {}
    given: set[str] = set()
    taken = {index.name for index, _ in indexes}
    for index, notes in indexes:
        if index.name in given:
            notes.left(
                f"a second tree of documents for the index {index.name!r} is left out",
                "Give it an index of its own, and an alias over both.",
            )
            continue
        given.add(index.name)
        name = re.sub(r"\W", "_", index.name.lower(), flags=re.ASCII)
        # A digit may not be the first. The prefix stands before an underscore.
        name = unused_name(f"_{name}" if name[:1].isdigit() else name, taken - {index.name})
        if name != index.name:
            adopt = f"`headrace adopt {name} --name {shlex.quote(index.name)}`"
            remedy = f"{adopt} gives it the name that readers use."
            notes.below("index").differs(f"the index {index.name} is called {name} here", remedy)
        taken.add(name)
        found[name] = index, notes
    return found


def _index_files(
    source: str, name: str, index: PgsyncIndex, converted: ConvertedIndex, notes: Notes
) -> dict[str, str]:
    """Return the files of an index."""
    comment = f"Documents of the index {name}, converted from {source}."
    found = {f"{name}.schema.yml": schema_text(converted.head, comment)}
    setting = {**index.setting, **({"default_pipeline": index.pipeline} if index.pipeline else {})}
    for word, content, check in (
        ("setting", {"index": setting} if setting else {}, settings_of),
        ("mapping", converted.mappings, mappings_of),
    ):
        try:
            if content and check(content):
                found[f"{name}.{word}s.json"] = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        except ValueError as error:
            notes.below(word).left(f"{word!r} of {name} is left out: {error}", _OTHERS.format(word))
    if index.plugins:
        notes.below("plugins").left(
            f"plugins are your own Python code: {', '.join(index.plugins)}",
            "Write what they do into the index's transform, see docs/guides/configuration.md#transforms, and "
            f"name the fields that they add in {name}.mappings.json.",
        )
    if converted.steps:
        found[f"{module_name(name)}.py"] = module_text(name, converted.steps)
    return found


def _index_text(name: str, files: Collection[str]) -> str:
    """Return an index of the deployment file with these files."""
    text = suggest_index(name, f"{name}.schema.yml")
    for word in ("settings", "mappings"):
        if f"{name}.{word}.json" in files:
            text += f"{word}_file = {write_toml_text(f'{name}.{word}.json')}\n"
    if f"{module_name(name)}.py" in files:
        text += f"transform = {write_toml_text(f'{module_name(name)}:{function_name(name)}')}\n"
    return text
