"""Serve the designer on this machine: a page, and what it asks of the database and of the files.

Whoever asks needs the token that is in the address behind `#`, where browsers keep it to themselves. The page
itself holds nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from http import HTTPStatus
from typing import Any, Self, TypeVar

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from headrace.catalog.suggestion import suggest_file, suggest_name
from headrace.errors import HeadraceError, Kind, unexpected
from headrace.model.layout import indented
from headrace.pipeline.project import error_list
from headrace.schema.json_schema import EDITOR_LINE
from headrace.status.bodies import NoOptions, read_body
from headrace.status.console.render import StaticFile, static_files
from headrace.status.protection import allows_host
from headrace.status.refusal import Refusal
from headrace.status.serving import HttpServer
from headrace.tools.check import Problem
from headrace.tools.designer.database import DesignDatabase
from headrace.tools.designer.edits import Edit, apply, parse
from headrace.tools.designer.files import ChangedMeanwhileError, DeploymentFolder, SchemaFile
from headrace.tools.designer.view import describe_schema, describe_tables
from headrace.tools.index_cost import IndexCost
from headrace.tools.next_steps import NEXT, next_commands
from headrace.tools.preview import PreviewedDocument

_MOST_BYTES = 2 << 20


class TableBody(NoOptions):
    """Which table becomes the root."""

    table: str


class FileBody(NoOptions):
    """Which schema file is opened."""

    file: str


class TextBody(NoOptions):
    """A schema file as it stands on the page, and what is done to it or asked of it."""

    index: str
    file: str
    text: str
    edit: Edit | None = None
    id: str | None = None
    another: bool = False
    fingerprint: str = ""
    force: bool = False


_Body = TypeVar("_Body", bound=NoOptions)


class DesignServer:
    """Serves the designer between enter and exit.

    Args:
        database: the database of the design.
        folder: the files of the design.
        address: `HOST:PORT` of this machine; port 0 takes a free one.
        open_file: the schema file that the page opens by itself.

    Raises:
        HeadraceError: USAGE for an address that is invalid.
    """

    def __init__(
        self, database: DesignDatabase, folder: DeploymentFolder, address: str, open_file: str = ""
    ) -> None:
        self._database = database
        self._folder = folder
        self._open_file = open_file
        # Any page in the same browser can send requests to this port. Only ours knows the token.
        self._token = secrets.token_urlsafe(32)
        self._http = HttpServer(self._application(), address, "design")

    @property
    def url(self) -> str:
        """The address of the page, with its token."""
        return f"http://{self._http.address}/#{self._token}"

    def __enter__(self) -> Self:
        """Listen.

        Raises:
            HeadraceError: PORT_IN_USE, USAGE.
        """
        self._http.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.stop()

    def _application(self) -> Starlette:
        own, console = static_files(__package__), static_files()
        pages = {
            "/": own["design.html"],
            **{f"/{name}": own[name] for name in ("design.css", "design.js", "picture.js")},
            **{f"/{name}": console[name] for name in ("console.css", "icon.svg")},
        }
        routes = [Route(path, self._page(file), methods=["GET"]) for path, file in pages.items()]
        routes += [
            self._route("/api/database", NoOptions, self._describe),
            self._route("/api/refresh", NoOptions, self._refresh),
            self._route("/api/start", TableBody, self._start),
            self._route("/api/open", FileBody, self._open),
            self._route("/api/view", TextBody, self._view),
            self._route("/api/look", TextBody, self._look),
            self._route("/api/save", TextBody, self._save),
        ]
        return Starlette(routes=routes)

    def _page(self, file: StaticFile) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            if (refused := self._refuse(request, needs_token=False)) is not None:
                return refused
            return Response(file.content, media_type=file.content_type)

        return answer

    def _route(self, path: str, model: type[_Body], action: Callable[[_Body], dict[str, Any]]) -> Route:
        async def answer(request: Request) -> Response:
            if (refused := self._refuse(request)) is not None:
                return refused
            try:
                body = await read_body(request, model, _MOST_BYTES)
                return _json(await run_in_threadpool(action, body))
            except Refusal as refusal:
                return refusal.response()
            except HeadraceError as error:
                is_conflict = isinstance(error, ChangedMeanwhileError)
                status = HTTPStatus.CONFLICT if is_conflict else HTTPStatus.UNPROCESSABLE_ENTITY
                return _wrong(error, status)
            except Exception as bug:  # noqa: BLE001 - the page tells it, and what was typed stays there
                return _wrong(unexpected("the designer failed", bug), HTTPStatus.INTERNAL_SERVER_ERROR)

        return Route(path, answer, methods=["POST"])

    def _refuse(self, request: Request, *, needs_token: bool = True) -> Response | None:
        """Return a refusal for a request of another page, or without the token; None where it may pass."""
        host = request.headers.get("host", "")
        origin = request.headers.get("origin", f"http://{host}")
        # A page elsewhere may have its own name lead to this machine; it then sends that name.
        if not allows_host(host, self._http.address, ()) or origin != f"http://{host}":
            cause = "the Host header does not name this address"
            error = HeadraceError(Kind.USAGE, cause, "Ask by the address.")
            return _wrong(error, HTTPStatus.MISDIRECTED_REQUEST)
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        # A comparison that ends at the first wrong sign would tell how much of a guess is right.
        is_known = scheme == "Bearer" and secrets.compare_digest(token.encode(), self._token.encode())
        if is_known or not needs_token:
            return None
        remedy = "Open the address that `headrace design` printed."
        error = HeadraceError(Kind.AUTHENTICATION, "the request has no valid token", remedy)
        return _wrong(error, HTTPStatus.UNAUTHORIZED)

    # What the page asks.

    def _describe(self, _: NoOptions) -> dict[str, Any]:
        """Describe the database and the files; what cannot be read is a problem beside the rest."""
        answer: dict[str, Any] = {"tables": [], "files": [], "problems": []}
        try:
            answer["tables"] = describe_tables(self._database.known())
        except HeadraceError as error:
            answer["problems"] += _problems(error)
        try:
            answer["files"] += (
                {"file": file, "index": index} for file, index in self._folder.files().items()
            )
        except HeadraceError as error:
            answer["problems"] += _problems(error)
        where = {"place": self._database.place, "folder": str(self._folder.folder), "open": self._open_file}
        return {**where, **answer}

    def _refresh(self, body: NoOptions) -> dict[str, Any]:
        self._database.facts = None
        return self._describe(body)

    def _start(self, body: TableBody) -> dict[str, Any]:
        """Suggest a schema file for a root table; a file that is there keeps its name to itself."""
        facts = self._database.known()
        root = facts.find(body.table)
        text = f"{EDITOR_LINE}\n{facts.suggester.schema(root)}"
        file, index, known = suggest_file(root), suggest_name(root), self._folder.files()
        number = 1
        # A suggestion never replaces a file that is there.
        while file in known or index in known.values():
            number += 1
            file, index = f"{suggest_name(root)}_{number}.schema.yml", f"{suggest_name(root)}_{number}"
        return self._shown(SchemaFile(index, file, text))

    def _open(self, body: FileBody) -> dict[str, Any]:
        return self._shown(self._folder.load(body.file))

    def _view(self, body: TextBody) -> dict[str, Any]:
        """Apply an edit, if there is one, and describe the schema."""
        text = body.text if body.edit is None else apply(body.text, body.edit, self._database.known())
        return self._shown(SchemaFile(body.index, body.file, text, body.fingerprint))

    def _shown(self, schema: SchemaFile) -> dict[str, Any]:
        """Return a schema file with its tree; None for the tree, and the mistakes, where it has some."""
        answer = {**asdict(schema), "tree": None, "problems": []}
        try:
            spec = parse(schema.text, schema.file, schema.index)
            answer["tree"] = describe_schema(spec, self._database.known())
        except HeadraceError as error:
            answer["problems"] = _problems(error)
        return answer

    def _look(self, body: TextBody) -> dict[str, Any]:
        spec = parse(body.text, body.file, body.index)
        report = self._database.look(spec, body.id or None, another=body.another)
        return {
            "problems": [entry.as_data() for entry in report.problems],
            "document": None if report.document is None else _document(report.document),
            "cost": None if report.cost is None else _cost(report.cost),
        }

    def _save(self, body: TextBody) -> dict[str, Any]:
        facts, (first, *others) = self._database.facts, NEXT
        schema = SchemaFile(body.index, body.file, body.text, body.fingerprint)
        written, found = self._folder.save(schema, "" if facts is None else facts.name, force=body.force)
        return {
            "written": [file.name for file in written],
            "fingerprint": found,
            "next": next_commands(self._folder.config, [first, f"headrace preview {body.index}", *others]),
        }


def _document(document: PreviewedDocument) -> dict[str, Any]:
    body = None if document.body is None else indented(document.body.decode())
    return {"id": document.id, "body": body, "milliseconds": round(document.seconds * 1000, 1)}


def _cost(cost: IndexCost) -> dict[str, Any]:
    nested = (field for field in cost.fields if field.type == "nested")
    return {
        "documents": cost.documents,
        "bytes": round(cost.bytes),
        "most_bytes": cost.most_bytes,
        "lucene": round(cost.lucene_documents, 1),
        "most_lucene": cost.most_lucene_documents,
        "lists": {field.path: [round(field.nested, 1), field.most_nested] for field in nested},
    }


def _problems(error: HeadraceError) -> list[dict[str, object]]:
    return [Problem("error", each).as_data() for each in error_list(error)]


def _wrong(error: HeadraceError, status: HTTPStatus) -> Response:
    return _json({"problems": _problems(error)}, status)


def _json(content: dict[str, Any], status: int = HTTPStatus.OK) -> Response:
    return JSONResponse(content, status_code=status)
