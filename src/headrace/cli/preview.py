"""`headrace preview`: what are the documents of these ids now? Reads: no slot, publication or sink."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.assembly import Assembler, first_statement, plan_document
from headrace.assembly.transform import transformed_operations
from headrace.catalog import read_catalog
from headrace.catalog.binding import complete, findings
from headrace.cli import terminal
from headrace.cli.layout import indented
from headrace.errors import HeadraceError, Kind
from headrace.model import DocumentOperation, key_of_id
from headrace.pipeline.project import Problems, find_index, open_project
from headrace.postgres.session import ReadSession
from headrace.schema import IndexSpec

_ONE_MOMENT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_THOUSAND = 1000


@dataclass(frozen=True, slots=True)
class _Found:
    id: str
    body: bytes | None
    seconds: float


def preview(
    config: Path,
    environ: Mapping[str, str],
    index: str,
    ids: Sequence[str],
    limit: int | None,
    *,
    timing: bool,
) -> bool:
    """Print documents as one moment of the database gives them; whether every id has one.

    Args:
        ids: of the documents; as many as `limit`, the first by their key, where none is given.
        timing: tell how long each took, on standard error.

    Raises:
        HeadraceError: what keeps the index from being read.
    """
    if ids and limit is not None:
        raise HeadraceError(Kind.USAGE, "--id and --limit do not go together", "Give one of them.")
    project = open_project(config, environ)
    spec = find_index(project, index)
    began = time.perf_counter()
    with ReadSession(project.database()) as session:
        view = _View(session, spec)
        prepared = time.perf_counter()
        session.query(_ONE_MOMENT)
        found = [view.document(one) for one in ids] if ids else view.first(limit or 1)
    if timing:
        terminal.say(f"connected and planned in {_milliseconds(prepared - began)}")
    for one in found:
        _show(spec, one, timing=timing)
    if not found:
        terminal.warn(f"{spec.name} has no document: {spec.table} has no live row{_left_out(spec)}")
    return bool(found) and all(one.body is not None for one in found)


class _View:
    """One index as one session sees it.

    Raises:
        HeadraceError: all that the database does not have.
    """

    def __init__(self, session: ReadSession, declared: IndexSpec) -> None:
        catalog = read_catalog(session, declared.tables())
        errors = tuple(one.error for one in findings(declared, catalog) if one.level == "error")
        if errors:
            raise Problems(errors)
        self._session = session
        self._spec = complete(declared, catalog)
        self._first = first_statement(plan_document(self._spec, catalog))
        self._assembler = Assembler(session, self._spec, catalog)

    def document(self, id_: str) -> _Found:
        """One document; an id that cannot be one of this index has none."""
        began = time.perf_counter()
        width = len(self._spec.primary_key)
        key = key_of_id(id_, width)
        made: list[DocumentOperation] = []
        if len(key) == width:
            made = list(self._assembler.assemble([key], 0))
        body = next((one.body for one in made if one.body is not None), None)
        return _Found(id_, body, time.perf_counter() - began)

    def first(self, count: int) -> list[_Found]:
        """The first live documents, those left out that a transform leaves out."""
        began = time.perf_counter()
        rows = self._session.query(self._first, (count,))
        made = [DocumentOperation(self._spec.name, id_, 0, body.encode()) for id_, body in rows]
        if self._spec.transform is not None:
            made = list(transformed_operations(self._spec.transform, made))
        each = (time.perf_counter() - began) / max(len(rows), 1)
        return [_Found(one.id, one.body, each) for one in made if one.body is not None]


def _left_out(spec: IndexSpec) -> str:
    return "" if spec.transform is None else f", or {spec.transform} leaves it out"


def _show(spec: IndexSpec, one: _Found, *, timing: bool) -> None:
    if one.body is None:
        terminal.warn(f"{spec.name} has no document {one.id}: no live row has this key{_left_out(spec)}")
        return
    told = f"{spec.name} {one.id}"
    if timing:
        told += f"  {_milliseconds(one.seconds)}, {len(one.body):,} bytes"
    terminal.say(told)
    terminal.out.print(indented(one.body.decode()), markup=False)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * _THOUSAND:.1f} ms"
