"""`headrace preview`: what are the documents of these ids now? Reads: no slot, publication or sink."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.assembly import first_statement, keys_statement, plan_document
from headrace.assembly.plan import DocumentPlan
from headrace.catalog import read_catalog
from headrace.catalog.binding import complete, findings
from headrace.cli import terminal
from headrace.cli.layout import indented
from headrace.cli.project import Problems, find_index, open_project
from headrace.errors import HeadraceError, Kind
from headrace.model import key_of_id
from headrace.postgres.session import ReadSession, is_no_value
from headrace.spec import IndexSpec

_ONE_MOMENT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_THOUSAND = 1000


@dataclass(frozen=True, slots=True)
class _Found:
    id: str
    body: str | None
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
        plan = bound_plan(session, spec)
        prepared = time.perf_counter()
        session.query(_ONE_MOMENT)
        found = [_document(session, plan, one) for one in ids] if ids else _first(session, plan, limit or 1)
    if timing:
        terminal.say(f"connected and planned in {_milliseconds(prepared - began)}")
    for one in found:
        _show(spec.name, one, timing=timing)
    if not found:
        terminal.warn(f"{spec.name} has no document: {spec.table} has no live row")
    return bool(found) and all(one.body is not None for one in found)


def bound_plan(session: ReadSession, spec: IndexSpec) -> DocumentPlan:
    """The plan of an index, once the database has what it names.

    Raises:
        HeadraceError: all that it does not have.
    """
    catalog = read_catalog(session, spec.tables())
    errors = tuple(one.error for one in findings(spec, catalog) if one.level == "error")
    if errors:
        raise Problems(errors)
    return plan_document(complete(spec, catalog), catalog)


def _document(session: ReadSession, plan: DocumentPlan, id_: str) -> _Found:
    """One document; an id that cannot be one of this index has none."""
    began = time.perf_counter()
    key = key_of_id(id_, len(plan.key))
    rows: list[tuple[str, str | None]] = []
    if len(key) == len(plan.key):
        session.query("SAVEPOINT document")
        try:
            rows = [(row[0], row[1]) for row in session.query(keys_statement(plan), [[part] for part in key])]
        except HeadraceError as error:
            if not is_no_value(error):
                raise
            session.query("ROLLBACK TO document")
    body = next((body for _, body in rows if body is not None), None)
    return _Found(id_, body, time.perf_counter() - began)


def _first(session: ReadSession, plan: DocumentPlan, count: int) -> list[_Found]:
    began = time.perf_counter()
    rows = session.query(first_statement(plan), (count,))
    each = (time.perf_counter() - began) / max(len(rows), 1)
    return [_Found(id_, body, each) for id_, body in rows]


def _show(index: str, one: _Found, *, timing: bool) -> None:
    if one.body is None:
        terminal.warn(f"{index} has no document {one.id}: no live row has this key")
        return
    told = f"{index} {one.id}"
    if timing:
        told += f"  {_milliseconds(one.seconds)}, {len(one.body.encode()):,} bytes"
    terminal.say(told)
    terminal.out.print(indented(one.body), markup=False)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * _THOUSAND:.1f} ms"
