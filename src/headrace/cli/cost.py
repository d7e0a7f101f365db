"""`headrace preview --cost`: print what an index pays for each of its fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from headrace.cli import terminal
from headrace.cli.context import CommandContext
from headrace.errors import HeadraceError, Kind
from headrace.model.units import quantity, size
from headrace.tools.index_cost import FieldCost, IndexCost, measure_cost
from headrace.tools.preview import SampleLimits

_HEAD = ("field", "indexed as", "nested", "most", "bytes", "share", "processed")


def print_cost(context: CommandContext, index: str, ids: Sequence[str], limit: int | None) -> bool:
    """Print what a sample of documents costs, field by field; return whether there is a document.

    Args:
        context: the deployment.
        index: the name of the index.
        ids: must be empty: a sample is spread over the table.
        limit: how many documents to look at.

    Raises:
        HeadraceError: the index cannot be read.
    """
    if ids:
        raise HeadraceError(Kind.USAGE, "--id and --cost do not go together", "Give one of them.")
    limits = SampleLimits() if limit is None else SampleLimits(documents=limit)
    cost = measure_cost(context.open_project(index), index, limits)
    if context.as_json:
        terminal.data(asdict(cost))
    else:
        _print(cost)
    return cost.documents > 0


def _print(cost: IndexCost) -> None:
    if cost.unreadable:
        terminal.warn(f"{quantity(cost.unreadable, 'document')} more cannot be read from the rows")
    if not cost.documents:
        why = "could be read in time" if cost.cut_short else "was found"
        terminal.warn(f"{cost.index}: no document {why} to look at")
        return
    documents = quantity(cost.documents, "document")
    why = " (bytes or time ran out)" if cost.cut_short else ""
    terminal.answer(f"{cost.index}: looked at {documents} from all over the table{why}")
    terminal.answer(f"  JSON               {_bytes(cost.bytes)} each, the largest {_bytes(cost.most_bytes)}")
    terminal.answer(f"  kept and indexed   {_bytes(cost.processed)} each")
    terminal.answer(
        f"  Lucene documents   {cost.lucene_documents:,.1f} each, at most {cost.most_lucene_documents:,}"
    )
    terminal.answer("")
    terminal.table(_HEAD, [_row(field) for field in cost.fields], right=(2, 3, 4, 5, 6))


def _bytes(count: float) -> str:
    return size(round(count))


def _row(field: FieldCost) -> tuple[str, ...]:
    is_nested = field.type == "nested"
    unindexed = field.type if field.type in {"nested", "object"} else "not indexed"
    return (
        field.path,
        ", ".join(field.indexed_as) or unindexed,
        f"{field.nested:,.1f}" if is_nested else "",
        f"{field.most_nested:,}" if is_nested else "",
        f"{field.bytes:,.0f}",
        f"{field.share:.1%}",
        f"{field.processed:,.0f}",
    )
