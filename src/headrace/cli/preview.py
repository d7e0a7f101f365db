"""`headrace preview`: print documents as they would be now, without slot, publication or sink."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.assembly import Assembler, first_statement, plan_document
from headrace.assembly.transform import transformed_operations
from headrace.catalog import read_catalog
from headrace.catalog.binding import complete, findings
from headrace.cli import terminal
from headrace.cli.context import CommandContext
from headrace.cli.layout import indented
from headrace.errors import ErrorGroup, HeadraceError, Kind
from headrace.model.changes import DocumentOperation, key_of_id
from headrace.pipeline.project import find_index
from headrace.postgres.session import ReadSession
from headrace.schema.tree import IndexSpec

_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_THOUSAND = 1000


@dataclass(frozen=True, slots=True)
class _PreviewedDocument:
    id: str
    body: bytes | None
    seconds: float


def preview(
    context: CommandContext,
    index: str,
    ids: Sequence[str],
    limit: int | None,
    *,
    timing: bool,
) -> bool:
    """Print documents from one snapshot of the database; return whether every id has one.

    Args:
        context: the deployment.
        index: the name of the index.
        ids: the ids of the documents; without them the first documents by key are printed.
        limit: how many documents without `ids`.
        timing: print on standard error how long each took.

    Raises:
        HeadraceError: the index cannot be read.
    """
    if ids and limit is not None:
        raise HeadraceError(Kind.USAGE, "--id and --limit do not go together", "Give one of them.")
    project = context.open_project()
    spec = find_index(project, index)
    began = time.perf_counter()
    with ReadSession(project.database()) as session:
        view = _View(session, spec)
        prepared = time.perf_counter()
        session.query(_BEGIN)
        found = [view.document(id_) for id_ in ids] if ids else view.first(limit or 1)
    if timing:
        terminal.say(f"connected and planned in {_milliseconds(prepared - began)}")
    for document in found:
        _show(spec, document, timing=timing)
    if not found:
        terminal.warn(f"{spec.name} has no document: {spec.table} has no live row{_left_out(spec)}")
    return bool(found) and all(document.body is not None for document in found)


class _View:
    """One index in one session.

    Raises:
        HeadraceError: everything that is missing in the database.
    """

    def __init__(self, session: ReadSession, declared: IndexSpec) -> None:
        catalog = read_catalog(session, declared.tables())
        errors = tuple(finding.error for finding in findings(declared, catalog) if finding.level == "error")
        if errors:
            raise ErrorGroup(errors)
        self._session = session
        self._spec = complete(declared, catalog)
        self._first = first_statement(plan_document(self._spec, catalog))
        self._assembler = Assembler(session, self._spec, catalog)

    def document(self, id_: str) -> _PreviewedDocument:
        """Assemble one document; an id that no row can have has none."""
        began = time.perf_counter()
        width = len(self._spec.primary_key)
        key = key_of_id(id_, width)
        operations: list[DocumentOperation] = []
        if len(key) == width:
            operations = list(self._assembler.assemble([key], 0))
        body = next((operation.body for operation in operations if operation.body is not None), None)
        return _PreviewedDocument(id_, body, time.perf_counter() - began)

    def first(self, count: int) -> list[_PreviewedDocument]:
        """Assemble the first documents by key, without those that a transform leaves out."""
        began = time.perf_counter()
        rows = self._session.query(self._first, (count,))
        operations = [DocumentOperation(self._spec.name, id_, 0, body.encode()) for id_, body in rows]
        if self._spec.transform is not None:
            operations = list(transformed_operations(self._spec.transform, operations))
        seconds_each = (time.perf_counter() - began) / max(len(rows), 1)
        return [
            _PreviewedDocument(operation.id, operation.body, seconds_each)
            for operation in operations
            if operation.body is not None
        ]


def _left_out(spec: IndexSpec) -> str:
    return "" if spec.transform is None else f", or {spec.transform} leaves it out"


def _show(spec: IndexSpec, document: _PreviewedDocument, *, timing: bool) -> None:
    if document.body is None:
        terminal.warn(f"{spec.name} has no document {document.id}: no live row has this key{_left_out(spec)}")
        return
    line = f"{spec.name} {document.id}"
    if timing:
        line += f"  {_milliseconds(document.seconds)}, {len(document.body):,} bytes"
    terminal.say(line)
    terminal.out.print(indented(document.body.decode()), markup=False)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * _THOUSAND:.1f} ms"
