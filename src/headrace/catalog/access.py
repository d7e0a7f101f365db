"""Check that the role may read the tables of documents, by running queries that read no row.

A role's attributes do not show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.catalog.table import Catalog
from headrace.catalog.usage import Usage
from headrace.errors import HeadraceError, Kind
from headrace.model.names import TableName
from headrace.postgres.lock_holders import LockedError
from headrace.postgres.quoting import identifier
from headrace.postgres.quoting import table as quoted
from headrace.postgres.session import ReadSession

_REASON = """
SELECT current_user::text, has_schema_privilege($1, 'USAGE'),
       (SELECT c.relrowsecurity AND row_security_active(c.oid)
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = $1 AND c.relname = $2)
"""


def unreadable_tables(
    session: ReadSession, usage: Usage, catalog: Catalog, roots: Iterable[TableName]
) -> dict[TableName, HeadraceError]:
    """Return each table that this role cannot read as it must, with the error, whose SQL grants it.

    The error of a table that is locked is a `LockedError`, without SQL.

    Args:
        session: with `row_security` off, so that a policy is an error and never a missing row.
        usage: the columns that are read, by table.
        catalog: the tables that exist; others are left out.
        roots: tables whose partitions are read one by one, when an index is backfilled.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    problems = {
        name: _find_problem(session, name, columns)
        for name, columns in _columns(usage, catalog, roots).items()
    }
    return {name: problem for name, problem in problems.items() if problem is not None}


def _columns(usage: Usage, catalog: Catalog, roots: Iterable[TableName]) -> dict[TableName, Sequence[str]]:
    columns_of: dict[TableName, Sequence[str]] = {}
    for name in sorted(usage):
        if name in catalog and catalog[name].kind in {"r", "p"}:
            # Rights may be granted by column.
            existing = [column.name for column in catalog[name].columns if column.name in usage[name]]
            columns_of[name] = existing or [column.name for column in catalog[name].columns[:1]]
    for name in sorted(set(roots) & columns_of.keys()):
        for leaf in catalog[name].partitions:
            columns_of.setdefault(leaf, columns_of[name])
    return {name: columns for name, columns in columns_of.items() if columns}


def _test_query(name: TableName, columns: Sequence[str]) -> str:
    """Return a query that names all needed columns and reads no row."""
    tests = " OR ".join(f"{identifier(column)} IS NULL" for column in columns)
    return f"SELECT 1 FROM {quoted(name)} WHERE false AND ({tests})"  # noqa: S608 - quoted


def _find_problem(session: ReadSession, name: TableName, columns: Sequence[str]) -> HeadraceError | None:
    """Return why the role cannot read these columns; None where it can."""
    try:
        session.query(_test_query(name, columns))
    except LockedError as error:
        return error
    except HeadraceError as error:
        if error.kind is not Kind.PRIVILEGE:
            raise
        return _explain(session, name)
    return None


def _explain(session: ReadSession, name: TableName) -> HeadraceError:
    [(role, may_use_schema, has_row_security)] = session.query(_REASON, (name.schema, name.name))
    grant = f"GRANT SELECT ON {quoted(name)} TO {identifier(role)};"
    if has_row_security:
        grant = f"ALTER ROLE {identifier(role)} BYPASSRLS;"
        cause = f"row security on {name} would hide rows from the role {role}, and with them documents"
        remedy = f"Run as a superuser: {grant} Or connect as the table's owner."
    elif not may_use_schema:
        grant = f"GRANT USAGE ON SCHEMA {identifier(name.schema)} TO {identifier(role)}; {grant}"
        cause, remedy = f"the role {role} may not use the schema of {name}", f"Run: {grant}"
    else:
        cause, remedy = f"the role {role} may not read {name}", f"Run: {grant}"
    return HeadraceError(Kind.PRIVILEGE, cause, remedy).mended_by([grant])
