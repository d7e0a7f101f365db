"""Do what is ordered of a run and changes no index, beside its stream: verifications, and the quarantine."""

from __future__ import annotations

from headrace.errors import HeadraceError, Kind
from headrace.model.units import quantity
from headrace.pipeline.order_desk import Outcome
from headrace.pipeline.project import Project
from headrace.pipeline.worker.plan import Endpoints
from headrace.reporter import SilentReporter
from headrace.state.orders import Order, OrderKind
from headrace.tools.quarantined_documents import forget_quarantined, list_quarantined, retry_quarantined
from headrace.tools.verification.report import as_data
from headrace.tools.verification.verify import VerifyOptions, verify


def do_errand(order: Order, project: Project, endpoints: Endpoints) -> Outcome:
    """Do what an order asks for that changes no index, beside the stream.

    Raises:
        HeadraceError: as `verify`, `retry_quarantined` and `list_quarantined`. USAGE: a later version can be
            asked for it.
    """
    document = order.options.get("id")
    if order.kind is OrderKind.UNKNOWN:
        raise HeadraceError(
            Kind.USAGE,
            "the run is of another version of Headrace, which does not know such an order",
            "Start the run again with the version that gave the order.",
        )
    if order.kind is OrderKind.VERIFY:
        options = VerifyOptions(**{"sink": order.sink or None, **order.options})
        report = verify(project, order.index or "", options, SilentReporter())
        return report.summary, as_data(report)
    if order.kind is OrderKind.QUARANTINE_RETRY:
        retried = retry_quarantined(project, order.index, document, sink=order.sink or None)
        left = [entry.to_json() for entry in retried.left]
        right = f"{retried.found - len(left):,} of {quantity(retried.found, 'document')} right now"
        return right, {"found": retried.found, "left": left}
    entries = list_quarantined(endpoints, project.key, order.index, document)
    forget_quarantined(endpoints, project.key, entries)
    dropped = [entry.to_json() for entry in entries]
    return f"forgotten: {quantity(len(entries), 'document')}", {"dropped": dropped}
