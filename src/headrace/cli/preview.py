"""`headrace preview`: print documents as they would be now, without slot, publication or sink."""

from __future__ import annotations

import time
from collections.abc import Sequence

from headrace.cli import terminal
from headrace.cli.context import CommandContext
from headrace.errors import HeadraceError, Kind
from headrace.model.layout import indented
from headrace.model.units import quantity
from headrace.pipeline.project import find_index
from headrace.schema.tree import IndexSpec
from headrace.tools.preview import PreviewedDocument, open_preview

_THOUSAND = 1000


def preview(
    context: CommandContext, index: str, ids: Sequence[str], limit: int | None, *, timing: bool
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
    # A limit would cut the list of ids without a word.
    if ids and limit is not None:
        raise HeadraceError(Kind.USAGE, "--id and --limit do not go together", "Give one of them.")
    project = context.open_project(index)
    spec = find_index(project, index)
    began = time.perf_counter()
    with open_preview(project.database(), spec) as documents:
        if timing:
            terminal.say(f"connected and planned in {_milliseconds(time.perf_counter() - began)}")
        found = [documents.document(id_) for id_ in ids] if ids else documents.first(limit or 1)
    for document in found:
        _show(spec, document, timing=timing, as_json=context.as_json)
    if not found:
        terminal.warn(f"{spec.name} has no document: {spec.table} has no live row{_left_out(spec)}")
    return bool(found) and all(document.body is not None for document in found)


def _left_out(spec: IndexSpec) -> str:
    filtered = ", or a filter leaves it out" if spec.filters else ""
    return filtered if spec.transform is None else f"{filtered}, or {spec.transform} leaves it out"


def _show(spec: IndexSpec, document: PreviewedDocument, *, timing: bool, as_json: bool) -> None:
    if document.body is None:
        terminal.warn(f"{spec.name} has no document {document.id}: no live row has this key{_left_out(spec)}")
        return
    took = f"  {_milliseconds(document.seconds)}, {quantity(len(document.body), 'byte')}" if timing else ""
    terminal.say(f"{spec.name} {document.id}{took}")
    if as_json:
        # A line break in a document is white space: PostgreSQL escapes those within texts.
        terminal.out.file.write(f"{' '.join(document.body.decode().splitlines())}\n")
    else:
        terminal.out.print(indented(document.body.decode()), markup=False)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * _THOUSAND:.1f} ms"
