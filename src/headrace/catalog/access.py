"""May this role read what documents are made of? Found by trying: a role's attributes say nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.catalog.table import Catalog
from headrace.catalog.usage import Usage
from headrace.errors import HeadraceError, Kind
from headrace.model import TableName
from headrace.postgres.quoting import identifier
from headrace.postgres.quoting import table as quoted
from headrace.postgres.session import ReadSession

_AT_ONCE = 100
_Attempt = tuple[TableName, str]
"""A table and the query that reads no row of it, and all the columns that are asked for."""

_WHY = """
SELECT current_user::text, has_schema_privilege($1, 'USAGE'),
       (SELECT c.relrowsecurity AND row_security_active(c.oid)
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = $1 AND c.relname = $2)
"""


def unreadable(
    session: ReadSession, usage: Usage, catalog: Catalog, roots: Iterable[TableName]
) -> dict[TableName, tuple[HeadraceError, str]]:
    """Each table that this role may not read as it must, with the SQL that lets it.

    Args:
        session: with `row_security` off, so that a policy is an error and never a missing row.
        usage: the columns that are read, by table.
        catalog: what exists of them; the rest is left out.
        roots: tables whose partitions are read by themselves, when an index is seeded.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    attempts = [(name, _reading(name, columns)) for name, columns in _columns(usage, catalog, roots).items()]
    refused: dict[TableName, tuple[HeadraceError, str]] = {}
    for start in range(0, len(attempts), _AT_ONCE):
        some = attempts[start : start + _AT_ONCE]
        if _refusal(session, " UNION ALL ".join(sql for _, sql in some)) is not None:
            refused |= {one[0]: found for one in some if (found := _judged(session, one)) is not None}
    return refused


def _columns(usage: Usage, catalog: Catalog, roots: Iterable[TableName]) -> dict[TableName, Sequence[str]]:
    found: dict[TableName, Sequence[str]] = {}
    for name in sorted(usage):
        if name in catalog and catalog[name].kind in {"r", "p"}:
            existing = [one.name for one in catalog[name].columns if one.name in usage[name]]
            found[name] = existing or [one.name for one in catalog[name].columns[:1]]
    for name in sorted(set(roots) & found.keys()):
        for leaf in catalog[name].partitions:
            found.setdefault(leaf, found[name])
    return {name: columns for name, columns in found.items() if columns}


def _reading(name: TableName, columns: Sequence[str]) -> str:
    tests = " OR ".join(f"{identifier(one)} IS NULL" for one in columns)
    return f"SELECT 1 FROM {quoted(name)} WHERE false AND ({tests})"  # noqa: S608 - quoted


def _refusal(session: ReadSession, sql: str) -> HeadraceError | None:
    try:
        session.query(sql)
    except HeadraceError as error:
        if error.kind is not Kind.PRIVILEGE:
            raise
        return error
    return None


def _judged(session: ReadSession, attempt: _Attempt) -> tuple[HeadraceError, str] | None:
    """Why the attempt is refused, and the SQL for it; None where it is not."""
    name, sql = attempt
    refusal = _refusal(session, sql)
    if refusal is None:
        return None
    [(role, enters, secured)] = session.query(_WHY, (name.schema, name.name))
    if secured:
        grant = f"ALTER ROLE {identifier(role)} BYPASSRLS;"
        cause = f"row security on {name} would hide rows from the role {role}, and with them documents"
        remedy = f"Run as a superuser: {grant} Or connect as the table's owner."
    elif not enters:
        grant = (
            f"GRANT USAGE ON SCHEMA {identifier(name.schema)} TO {identifier(role)}; "
            f"GRANT SELECT ON {quoted(name)} TO {identifier(role)};"
        )
        cause, remedy = f"the role {role} may not use the schema of {name}", f"Run: {grant}"
    else:
        grant = f"GRANT SELECT ON {quoted(name)} TO {identifier(role)};"
        cause, remedy = f"the role {role} may not read {name}", f"Run: {grant}"
    return HeadraceError(Kind.PRIVILEGE, cause, remedy), grant
