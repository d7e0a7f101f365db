"""What does the server refuse of an index? Found by trying; nothing is read and nothing altered."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from headrace.assembly import plan_document
from headrace.assembly.trial import document_trial, filter_trials
from headrace.catalog import Catalog
from headrace.catalog.access import unreadable
from headrace.catalog.binding import BindingFinding
from headrace.catalog.functions import function_findings
from headrace.catalog.identifiers import id_findings
from headrace.catalog.labels import label_findings
from headrace.catalog.usage import Usage
from headrace.errors import HeadraceError, Kind
from headrace.model import TableName
from headrace.postgres.session import ReadSession
from headrace.schema import IndexSpec, LocatedError

_EXPLAIN = "EXPLAIN (COSTS OFF) "


def look_closer(session: ReadSession, specs: Iterable[IndexSpec], catalog: Catalog) -> list[BindingFinding]:
    """What only a query tells: the functions in raw filters, the labels of enums, the ids of documents."""
    listed = list(specs)
    ids = [one for spec in listed for one in id_findings(session, spec, catalog)]
    return [*function_findings(session, listed), *label_findings(session, listed, catalog), *ids]


def try_reading(
    session: ReadSession,
    specs: Sequence[IndexSpec],
    catalog: Catalog,
    usage: Usage,
    *,
    unfit: Collection[str] = (),
) -> list[BindingFinding]:
    """What this role, or the server, refuses of what the documents of `specs` are made of.

    Args:
        unfit: the indexes that do not fit the catalog; of them only the parts that exist are tried.

    Raises:
        HeadraceError: CONNECTION.
    """
    refused = unreadable(session, usage, catalog, [spec.table for spec in specs])
    found = [BindingFinding("error", error, (sql,)) for error, sql in refused.values()]
    for spec in specs:
        wrong = _try_filters(session, spec, catalog, refused)
        if not (wrong or refused or spec.name in unfit):
            wrong = _try_documents(session, spec, catalog)
        found += wrong
    return found


def _try_documents(session: ReadSession, spec: IndexSpec, catalog: Catalog) -> list[BindingFinding]:
    try:
        sql, parameters = document_trial(plan_document(spec, catalog))
    except HeadraceError as error:
        return [BindingFinding("error", error)]
    refusal = _refusal(session, sql, parameters)
    if refusal is None:
        return []
    cause = f"{spec.place}: the documents of {spec.name} cannot be read: {refusal.told}"
    return [BindingFinding("error", HeadraceError(refusal.kind, cause, refusal.remedy))]


def _try_filters(
    session: ReadSession, spec: IndexSpec, catalog: Catalog, without: Collection[TableName]
) -> list[BindingFinding]:
    """All filters in one statement, and where that is refused, each by itself."""
    trials = [(one, sql) for table, one, sql in filter_trials(spec, catalog) if table not in without]
    if not trials or _refusal(session, " UNION ALL ".join(sql for _, sql in trials)) is None:
        return []
    found = []
    for condition, sql in trials:
        refusal = _refusal(session, sql)
        if refusal is not None:
            kind = Kind.PRIVILEGE if refusal.kind is Kind.PRIVILEGE else Kind.BINDING
            remedy = refusal.remedy or "Correct the filter."
            found.append(BindingFinding("error", LocatedError(kind, condition.place, refusal.told, remedy)))
    return found


def _refusal(session: ReadSession, sql: str, parameters: Sequence[object] = ()) -> HeadraceError | None:
    try:
        session.query(_EXPLAIN + sql, parameters)
    except HeadraceError as error:
        if error.kind is Kind.CONNECTION:
            raise
        return error
    return None
