"""Check an order of a reindex or a rollback, from any machine that reaches server and cluster."""

from __future__ import annotations

from headrace.errors import HeadraceError, Kind
from headrace.pipeline.controller.generations import why_no_way_back
from headrace.pipeline.project import Project, find_index
from headrace.state.orders import Order, OrderKind
from headrace.tools.applied_position import AppliedPosition


def check_generation_order(applied: AppliedPosition, project: Project, order: Order) -> None:
    """Refuse a reindex or a rollback that is known to be impossible.

    Raises:
        HeadraceError: USAGE: the index does not exist, or there is no generation to roll back to.
            SLOT_UNKNOWN, CONTINUITY, CONNECTION, SINK_UNREACHABLE.
    """
    index = order.index or ""
    find_index(project, index)
    state = applied.check()
    if order.kind is OrderKind.ROLLBACK and (why_not := why_no_way_back(index, state.of(index))):
        remedy = "`headrace indexes` lists what is there; [generations] keep says how many are kept."
        raise HeadraceError(Kind.USAGE, why_not, remedy)
