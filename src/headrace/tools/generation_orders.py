"""Order a reindex or a rollback of an index, from any machine that reaches the server and the cluster."""

from __future__ import annotations

from headrace.errors import HeadraceError, Kind
from headrace.pipeline.controller.generations import why_no_way_back
from headrace.pipeline.project import Project, find_index
from headrace.state.orders import Mailbox, Order, OrderKind
from headrace.tools.applied_position import AppliedPosition


def submit_for_generation(applied: AppliedPosition, project: Project, order: Order) -> Order:
    """Submit a reindex or a rollback; what is known to be impossible is refused at once.

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
    return Mailbox(applied.client, applied.key).submit(order)
