"""`headrace design`: serve the designer on this machine until it is ended."""

from __future__ import annotations

import json
import sys
import webbrowser
from pathlib import Path

from headrace.cli import terminal
from headrace.cli.context import CommandContext
from headrace.cli.init import check_sink, tell_of_password
from headrace.cli.signals import stopping_by_signals
from headrace.errors import HeadraceError, Kind
from headrace.model.units import quantity
from headrace.postgres.deployment_database import database_of
from headrace.tools.designer.database import DesignDatabase
from headrace.tools.designer.files import DeploymentFolder
from headrace.tools.designer.server import DesignServer


def design(
    context: CommandContext, url: str | None, folder: Path, file: str, sink: str, *, port: int, opens: bool
) -> None:
    """Serve the page; a database that is away is told there too, and asked again.

    Raises:
        HeadraceError: USAGE: there is no URL and no deployment; CONFIG; PORT_IN_USE.
    """
    check_sink(sink)
    files = DeploymentFolder(folder, url or "", sink, context.environ)
    database = DesignDatabase(url or _database_of(files))
    if file:
        files.load(file)
    try:
        tables = len(database.read().catalog.tables)
        terminal.done(f"{database.place}: {quantity(tables, 'table')}")
    except HeadraceError as error:
        terminal.warn(f"{error}")
    with DesignServer(database, files, f"127.0.0.1:{port}", file) as server:
        if context.as_json:
            # On one line, and at once: the program that reads it does not wait for the end of the output.
            print(json.dumps({"url": server.url}), file=terminal.out.file, flush=True)
        else:
            terminal.answer(server.url)
        terminal.say("open it in a browser; Ctrl-C ends it")
        if not files.config.exists():
            tell_of_password(url or "")
        # In a container, and behind a pipe, nobody sees a browser.
        if opens and sys.stdout.isatty():
            webbrowser.open(server.url)
        stopping_by_signals().wait()


def _database_of(files: DeploymentFolder) -> str:
    """Return the address of the deployment's database."""
    deployment = files.deployment()
    if deployment is None:
        cause = f"no database is named, and there is no {files.config}"
        raise HeadraceError(Kind.USAGE, cause, "Write headrace design postgresql://USER@HOST/DATABASE.")
    return database_of(deployment, deployment.source.slot)
