"""Is a condition in the user's own SQL one that a document may depend on?

A document is a function of committed rows, and a change of any row it depends on must lead to it. A
subquery reads rows that nothing leads from; a volatile function gives another value at every read.
"""

from __future__ import annotations

import re

from headrace.errors import HeadraceError, Kind
from headrace.spec.tree import Place

_TOKEN = re.compile(
    r"""
      (?P<comment>--|/\*)
    | (?P<text>[eE]'(?:[^'\\]|\\.|'')*' | [bBxXnN]?'(?:[^']|'')*' | \$(?P<tag>[A-Za-z_]*)\$.*?\$(?P=tag)\$)
    | (?P<broken>[eE]')
    | (?P<quoted>"(?:[^"]|"")*")
    | (?P<parameter>\$[0-9]+)
    | (?P<word>[^\W\d]\w*)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_STATEMENTS = frozenset("select with insert update delete merge table values exists".split())
_CLOCKS = frozenset(
    "current_timestamp current_date current_time localtime localtimestamp current_user session_user "
    "user current_role current_catalog current_schema".split()
)
_VOLATILE = frozenset(
    "now clock_timestamp statement_timestamp transaction_timestamp timeofday random random_normal setseed "
    "gen_random_uuid uuidv4 uuidv7 nextval currval lastval setval txid_current pg_current_xact_id pg_sleep "
    "current_setting set_config pg_backend_pid age".split()
)


def check_raw(sql: str, place: Place) -> None:
    """Accept a condition that holds only operators, literals, columns and functions of them.

    Raises:
        HeadraceError: SCHEMA, with the place, for anything that could end the condition, read other rows or
            change from one reading to the next.
    """
    if not sql.strip():
        raise _refused(place, "an empty condition")
    depth = 0
    for match in _TOKEN.finditer(sql):
        reason = _reason(match.lastgroup, match[0], called=sql[match.end() :].lstrip().startswith("("))
        if reason:
            raise _refused(place, reason)
        depth += {"(": 1, ")": -1}.get(match[0], 0)
        if depth < 0:
            break
    if depth != 0:
        raise _refused(place, "parentheses that do not match")


def _reason(kind: str | None, token: str, *, called: bool) -> str | None:
    name = token.strip('"').lower()
    if kind in ("comment", "parameter") or token in (";", "\0"):
        return repr(token)
    if kind == "word" and name in _STATEMENTS:
        return f"the subquery or statement that {token} begins"
    if (kind == "word" and name in _CLOCKS) or (called and name in _VOLATILE):
        return f"{token}, which differs from one reading to the next"
    if kind == "broken" or token in {"'", '"'}:
        return "a quote that is never closed"
    return None


def _refused(place: Place, what: str) -> HeadraceError:
    return HeadraceError(
        Kind.SCHEMA,
        f"{place}: a raw filter may not hold {what}",
        "Write a condition on the columns of this row alone.",
    )
