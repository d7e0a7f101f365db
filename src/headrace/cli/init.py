"""`headrace init`: write a deployment file and a first schema file from a table's foreign keys.

It also writes the JSON Schema by which editors complete schema files. An existing one stays as it is.
"""

from __future__ import annotations

from pathlib import Path

from headrace.catalog import list_tables, read_catalog, suggest_name, suggest_schema
from headrace.catalog.hints import read_hints
from headrace.catalog.suggestion import suggest_file
from headrace.cli import terminal
from headrace.cli.context import CommandContext
from headrace.config.suggestion import holds_password
from headrace.errors import HeadraceError, Kind
from headrace.model.names import TableName, quote_if_needed
from headrace.model.suggestion import meant
from headrace.postgres.session import ReadSession
from headrace.schema.json_schema import EDITOR_LINE
from headrace.tools.designer.files import DeploymentFolder, SchemaFile
from headrace.tools.next_steps import NEXT, next_commands


def initialise(context: CommandContext, url: str, table: str, folder: Path, sink: str) -> None:
    """Write the files; where the folder has a deployment, add an index to it. Nothing is overwritten.

    Raises:
        HeadraceError: USAGE: the table is unknown, `sink` is not a URL, or the index or schema file exists.
            DISK: the files cannot be written. CONFIG, CONNECTION, AUTHENTICATION.
    """
    # Before the database is asked: what is mistyped is told at once.
    check_sink(sink)
    files = DeploymentFolder(folder, url, sink, context.environ)
    with ReadSession(url) as session:
        tables = list_tables(session)
        root = find_table(table, tables)
        catalog = read_catalog(session, tables)
        hints = read_hints(session, catalog)
        [(database,)] = session.query("SELECT current_database()::text")
    is_new = not files.config.exists()
    schema = SchemaFile(
        suggest_name(root), suggest_file(root), f"{EDITOR_LINE}\n{suggest_schema(catalog, root, hints)}"
    )
    written, _ = files.save(schema, str(database))
    for file in written:
        if file == files.config and not is_new:
            terminal.done(f"added the index {schema.index} to {file}")
        else:
            terminal.done(f"wrote {file}")
    commands = next_commands(files.config, NEXT)
    terminal.say(f"next: {', '.join(commands)}")
    if is_new:
        tell_of_password(url)
    if context.as_json:
        terminal.data({"written": list(map(str, written)), "next": commands})


def check_sink(sink: str) -> None:
    """Refuse what is no address of a cluster.

    Raises:
        HeadraceError: USAGE.
    """
    if not sink.startswith(("http://", "https://")):
        raise HeadraceError(Kind.USAGE, "--sink is not the address of a cluster", "Write https://HOST:PORT.")


def tell_of_password(url: str) -> None:
    """Say where a password that is not written is taken from."""
    if holds_password(url):
        terminal.say(
            "the file does not hold the URL, because the URL has a password. The commands read it from the "
            "variable DATABASE_URL: export DATABASE_URL='postgresql://…'"
        )


def find_table(text: str, tables: list[TableName]) -> TableName:
    """Return the table that is meant: spelled as messages do, or with each name as the catalog has it.

    Raises:
        HeadraceError: USAGE, where there is none, or several are.
    """
    exact = [table for table in tables if text == str(table)]
    found = exact or [table for table in tables if text in _spellings(table)]
    if len(found) == 1:
        return found[0]
    missing = f"there is no table {text} in the database"
    cause = f"{text} may be several tables of the database" if found else missing
    remedy = meant(text, map(str, found or tables)) or "The database has no tables."
    raise HeadraceError(Kind.USAGE, cause, remedy)


def _spellings(table: TableName) -> set[str]:
    quoted = f"{quote_if_needed(table.schema)}.{quote_if_needed(table.name)}"
    bare = {table.name} if table.schema == "public" else set()
    return {f"{table.schema}.{table.name}", quoted, *bare}
