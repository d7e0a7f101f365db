"""Try the queries of documents as a role, to find what the server would refuse it; no row is read.

EXPLAIN shows it. Only raw filters are executed on some rows too, because they may call functions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from headrace.assembly.lowering import plan_document
from headrace.assembly.statement import document_probe, filter_probes, filter_trials
from headrace.catalog import Catalog
from headrace.catalog.access import unreadable_tables
from headrace.catalog.binding import BindingFinding
from headrace.catalog.checks import function_findings, label_findings
from headrace.catalog.usage import Usage
from headrace.errors import HeadraceError, Kind, LocatedError, Retry
from headrace.model.names import TableName
from headrace.postgres.lock_holders import LockedError
from headrace.postgres.session import ReadSession
from headrace.schema.tree import Filter, IndexSpec

# It checks names, types and privileges, and reads no row.
_EXPLAIN = "EXPLAIN (COSTS OFF) "


def query_findings(
    session: ReadSession, specs: Iterable[IndexSpec], catalog: Catalog
) -> list[BindingFinding]:
    """Return findings that need a query: functions of filters, and enum labels."""
    listed = list(specs)
    return [*function_findings(session, listed), *label_findings(session, listed, catalog)]


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
    found = [
        BindingFinding("warning" if isinstance(error, LockedError) else "error", error)
        for error in refused.values()
    ]
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
    refusal = _refusal(session, _EXPLAIN + sql, parameters)
    if refusal is None:
        return []
    problem = f"the documents of {spec.name} cannot be read: {refusal.full_cause}"
    return [BindingFinding("error", LocatedError(refusal.kind, spec.place, problem, refusal.remedy))]


def _try_filters(
    session: ReadSession, spec: IndexSpec, catalog: Catalog, without: Collection[TableName]
) -> list[BindingFinding]:
    """Try each filter; where none is refused, execute the raw ones on some rows."""
    probes = filter_probes(spec, catalog)
    refused = [
        _filter_finding(condition, refusal)
        for table, condition, sql in probes
        if table not in without and (refusal := _refusal(session, _EXPLAIN + sql)) is not None
    ]
    return refused or _execute_filters(session, spec, catalog, without)


def _execute_filters(
    session: ReadSession, spec: IndexSpec, catalog: Catalog, without: Collection[TableName]
) -> list[BindingFinding]:
    """Execute raw filters on some rows, for names and privileges that a function's body lacks.

    What else makes one fail is the content of a row, which `on_error` is about.
    """
    found: dict[Filter, BindingFinding] = {}
    for table, condition, sql in filter_trials(spec, catalog):
        refusal = None if table in without else _refusal(session, sql)
        if refusal is not None and refusal.kind in (Kind.BINDING, Kind.PRIVILEGE):
            found[condition] = _filter_finding(condition, refusal)
    return list(found.values())


def _filter_finding(condition: Filter, refusal: HeadraceError) -> BindingFinding:
    kind = Kind.PRIVILEGE if refusal.kind is Kind.PRIVILEGE else Kind.BINDING
    remedy = refusal.remedy or "Correct the filter."
    return BindingFinding("error", LocatedError(kind, condition.place, refusal.full_cause, remedy))


def _refusal(session: ReadSession, sql: str, parameters: Sequence[object] = ()) -> HeadraceError | None:
    """Return why the server refuses a statement; None where it does not, or a lock hides it."""
    try:
        session.query(sql, parameters)
    except LockedError:
        return None
    except HeadraceError as error:
        if error.retry is Retry.BACK_OFF:
            raise
        return error
    return None
