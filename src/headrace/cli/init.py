"""`headrace init`: write a deployment file and a first schema file from a table's foreign keys.

It also writes the JSON Schema by which editors complete schema files. An existing one stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headrace.catalog import list_tables, read_catalog, suggest_name, suggest_schema
from headrace.cli import terminal
from headrace.config.load import load_deployment
from headrace.config.suggestion import holds_password, suggest_deployment, suggest_index, suggest_slot
from headrace.errors import HeadraceError, Kind
from headrace.model.names import TableName
from headrace.model.suggestion import meant
from headrace.postgres.session import ReadSession
from headrace.schema.json_schema import EDITOR_FILE, EDITOR_LINE, schema_text

_CONFIG = "headrace.toml"


def initialise(url: str, table: str, folder: Path, sink: str) -> None:
    """Write the files; where the folder has a deployment, add an index to it. Nothing is overwritten.

    Raises:
        HeadraceError: USAGE: the table is unknown, `sink` is not a URL, or the index or schema file exists.
            DISK: the files cannot be written. CONFIG, CONNECTION, AUTHENTICATION.
    """
    if not sink.startswith(("http://", "https://")):
        raise HeadraceError(Kind.USAGE, "--sink is no address of a cluster", "Write https://HOST:PORT.")
    with ReadSession(url) as session:
        tables = list_tables(session)
        root = _find(table, tables)
        catalog = read_catalog(session, tables)
        [(database,)] = session.query("SELECT current_database()::text")
    config, name, schema = folder / _CONFIG, suggest_name(root), folder / f"{root.name}.schema.yml"
    if schema.exists():
        raise HeadraceError(Kind.USAGE, f"{schema} exists already", "Move it away, or name a --folder.")
    known = config.read_text(encoding="utf-8") if config.exists() else None
    if known is not None and name in {entry.name for entry in load_deployment(config, {}).indexes}:
        raise HeadraceError(Kind.USAGE, f"{config} has an index {name!r} already", "Name another --folder.")
    files = {schema: f"{EDITOR_LINE}\n{suggest_schema(catalog, root)}"}
    if known is None:
        files[config] = suggest_deployment(
            url, {name: schema.name}, opensearch_url=sink, slot=suggest_slot(str(database))
        )
    if not (folder / EDITOR_FILE).exists():
        files[folder / EDITOR_FILE] = schema_text()
    _write(folder, files)
    if known is not None:
        _replace(config, known.rstrip("\n") + "\n" + suggest_index(name, schema.name))
        terminal.done(f"added the index {name} to {config}")
    terminal.say("next: headrace check, headrace setup, headrace run")
    if known is None and holds_password(url):
        terminal.say(
            "the URL holds a password, so the file does not name it: these commands take it from the "
            "environment: export DATABASE_URL='postgresql://…'"
        )


def _replace(file: Path, text: str) -> None:
    """Write a file completely, or leave it as it is."""
    new = file.with_name(f"{file.name}.new")
    try:
        new.write_text(text, encoding="utf-8")
        new.replace(file)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise HeadraceError(
            Kind.DISK,
            f"{file} cannot be written: {error.strerror}",
            "Make it writable, and add the index by hand.",
        ) from error


def _write(folder: Path, files: Mapping[Path, str]) -> None:
    """Write all files, or none."""
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            with file.open("x", encoding="utf-8") as new:
                written.append(file)
                new.write(text)
    except OSError as error:
        for file in written:
            file.unlink(missing_ok=True)
        raise HeadraceError(
            Kind.DISK, f"{folder}: the files cannot be written: {error.strerror}", "Name another --folder."
        ) from error
    for file in written:
        terminal.done(f"wrote {file}")


def _find(text: str, tables: list[TableName]) -> TableName:
    schema, _, name = text.rpartition(".")
    table_name = TableName(schema or "public", name)
    if table_name in tables:
        return table_name
    raise HeadraceError(
        Kind.USAGE,
        f"there is no table {table_name} in the database",
        meant(str(table_name), [str(known_table) for known_table in tables]) or "The database has no tables.",
    )
