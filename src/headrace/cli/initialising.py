"""`headrace init`: a deployment file and a first schema file from a table's foreign keys."""

from __future__ import annotations

from pathlib import Path

from headrace.catalog import list_tables, read_catalog
from headrace.catalog.suggestion import suggest_deployment, suggest_schema
from headrace.cli import terminal
from headrace.errors import HeadraceError, Kind
from headrace.model import TableName
from headrace.model.nearest import meant
from headrace.postgres.session import ReadSession

_CONFIG = "headrace.toml"


def initialise(url: str, table: str, folder: Path, sink: str) -> None:
    """Write the two files; nothing that exists is overwritten.

    Raises:
        HeadraceError: USAGE for an unknown table or files that exist, CONNECTION, AUTHENTICATION.
    """
    with ReadSession(url) as session:
        tables = list_tables(session)
        root = _find(table, tables)
        catalog = read_catalog(session, tables)
    schema = folder / f"{root.name}.schema.yml"
    for file in (folder / _CONFIG, schema):
        if file.exists():
            raise HeadraceError(Kind.USAGE, f"{file} exists already", "Move it away, or name a --folder.")
    files = {
        schema: suggest_schema(catalog, root),
        folder / _CONFIG: suggest_deployment(url, sink, root, schema.name),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        file.write_text(text, encoding="utf-8")
        terminal.done(f"wrote {file}")
    terminal.say("next: headrace check, headrace setup, headrace run")


def _find(text: str, tables: list[TableName]) -> TableName:
    schema, _, name = text.rpartition(".")
    wanted = TableName(schema or "public", name)
    if wanted in tables:
        return wanted
    raise HeadraceError(
        Kind.USAGE,
        f"there is no table {wanted} in the database",
        meant(str(wanted), [str(one) for one in tables]) or "The database has no tables.",
    )
