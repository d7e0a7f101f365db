"""Find what the server refuses of an index by a dry run: no row is read and nothing is altered."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from headrace.assembly import plan_document
from headrace.assembly.statement import document_probe, filter_probes
from headrace.catalog import Catalog
from headrace.catalog.access import unreadable_tables
from headrace.catalog.binding import BindingFinding
from headrace.catalog.checks import function_findings, id_findings, label_findings
from headrace.catalog.usage import Usage
from headrace.errors import HeadraceError, Kind, LocatedError
from headrace.model import TableName
from headrace.postgres.session import ReadSession
from headrace.schema import IndexSpec

_EXPLAIN = "EXPLAIN (COSTS OFF) "


def query_findings(
    session: ReadSession, specs: Iterable[IndexSpec], catalog: Catalog
) -> list[BindingFinding]:
    """Return findings that need a query: functions in raw filters, enum labels, ids of documents."""
    listed = list(specs)
    ids = [finding for spec in listed for finding in id_findings(session, spec, catalog)]
    return [*function_findings(session, listed), *label_findings(session, listed, catalog), *ids]


def try_reading(
    session: ReadSession,
    specs: Sequence[IndexSpec],
    catalog: Catalog,
    usage: Usage,
    *,
    unfit: Collection[str] = (),
) -> list[BindingFinding]:
    """Return what the server refuses this role when it reads the documents of `specs`.

    Args:
        session: a session of the role.
        specs: the schemas of the indexes.
        catalog: the catalog that they are bound to.
        usage: the columns that the documents read, by table.
        unfit: indexes that do not fit the catalog; only the parts of them that exist are tried.

    Raises:
        HeadraceError: CONNECTION.
    """
    refused = unreadable_tables(session, usage, catalog, [spec.table for spec in specs])
    found = [BindingFinding("error", error, (sql,)) for error, sql in refused.values()]
    for spec in specs:
        wrong = _try_filters(session, spec, catalog, refused)
        if not (wrong or refused or spec.name in unfit):
            wrong = _try_documents(session, spec, catalog)
        found += wrong
    return found


def _try_documents(session: ReadSession, spec: IndexSpec, catalog: Catalog) -> list[BindingFinding]:
    try:
        sql, parameters = document_probe(plan_document(spec, catalog))
    except HeadraceError as error:
        return [BindingFinding("error", error)]
    refusal = _explain(session, sql, parameters)
    if refusal is None:
        return []
    problem = f"the documents of {spec.name} cannot be read: {refusal.full_cause}"
    return [BindingFinding("error", LocatedError(refusal.kind, spec.place, problem, refusal.remedy))]


def _try_filters(
    session: ReadSession, spec: IndexSpec, catalog: Catalog, without: Collection[TableName]
) -> list[BindingFinding]:
    """Try all filters in one statement and, where that is refused, each by itself."""
    trials = [
        (condition, sql) for table, condition, sql in filter_probes(spec, catalog) if table not in without
    ]
    if not trials or _explain(session, " UNION ALL ".join(sql for _, sql in trials)) is None:
        return []
    found = []
    for condition, sql in trials:
        refusal = _explain(session, sql)
        if refusal is not None:
            kind = Kind.PRIVILEGE if refusal.kind is Kind.PRIVILEGE else Kind.BINDING
            remedy = refusal.remedy or "Correct the filter."
            found.append(
                BindingFinding("error", LocatedError(kind, condition.place, refusal.full_cause, remedy))
            )
    return found


def _explain(session: ReadSession, sql: str, parameters: Sequence[object] = ()) -> HeadraceError | None:
    try:
        session.query(_EXPLAIN + sql, parameters)
    except HeadraceError as error:
        if error.kind is Kind.CONNECTION:
            raise
        return error
    return None
