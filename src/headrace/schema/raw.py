"""Check a condition in the user's own SQL: may a document depend on it? Pure.

A document is a function of committed rows, and a change of any row it depends on must lead to it. A subquery
reads rows that lead to no document; a volatile function gives another value at every read. User functions are
looked up in the catalog: `called_functions` names them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

RAW_REMEDY = (
    "Write a condition on the columns of this row alone; `unsafe: true` beside it takes it as it is, and "
    "documents may go stale."
)

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
    "current_setting set_config pg_backend_pid".split()
)
_MOMENTS = frozenset({"now", "today", "tomorrow", "yesterday"})
# Beside such a word stand dates, times and zones: `today 10:00 PM`, `now CET`, but not `today is fine`.
_BESIDE = re.compile(r".*[\d/].*|[^a-z]{1,5}|(?i:am|pm|utc)")
_CALL = re.compile(
    r"""(?:(?P<schema>"(?:[^"]|"")+"|[^\W\d]\w*)\s*\.\s*)?(?P<name>"(?:[^"]|"")+"|[^\W\d]\w*)\s*\("""
)


def raw_problem(sql: str, *, unsafe: bool = False) -> str | None:
    """Return why a raw condition is not accepted; None where it is.

    Args:
        sql: the condition; operators, literals, columns and functions of them are accepted.
        unsafe: whether to accept subqueries and volatile functions; text that could end the condition is
            refused all the same.
    """
    if not sql.strip():
        return "a raw filter may not hold an empty condition"
    depth = 0
    for match in _TOKEN.finditer(sql):
        reason = _ending_token(match.lastgroup, match[0])
        if reason is None and not unsafe:
            reason = _volatile_token(match.lastgroup, match[0], sql[match.end() :].lstrip())
        if reason is not None:
            return f"a raw filter may not hold {reason}"
        # A condition stands in parentheses of its own: it must not close them.
        depth += {"(": 1, ")": -1}.get(match[0], 0)
        if depth < 0:
            break
    return None if depth == 0 else "a raw filter may not hold parentheses that do not match"


def is_moment(text: str) -> bool:
    """Return whether PostgreSQL reads the text, as a date or time, as another value at every reading."""
    rest = [word for word in text.split() if word.lower() not in _MOMENTS]
    return len(rest) < len(text.split()) and all(map(_BESIDE.fullmatch, rest))


def called_functions(sql: str) -> Iterator[tuple[str | None, str]]:
    """Yield the functions that the condition may call: the schema, if one is written, and the name."""
    # What looks like a call inside a text is none.
    without = _TOKEN.sub(lambda match: " '' " if match.lastgroup == "text" else match[0], sql)
    for match in _CALL.finditer(without):
        schema = match["schema"]
        yield (None if schema is None else folded(schema)), folded(match["name"])


def folded(name: str) -> str:
    """Return a name in SQL as the catalog holds it."""
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()


def _ending_token(kind: str | None, token: str) -> str | None:
    """Return what would end the condition, or hide its end; None where nothing does."""
    if kind in ("comment", "parameter") or token in (";", "\0"):
        return repr(token)
    return "a quote that is never closed" if kind == "broken" or token in {"'", '"'} else None


def _volatile_token(kind: str | None, token: str, rest: str) -> str | None:
    """Return what can change without a change of the row; None where nothing can; `rest` follows it."""
    # Quotes do not hide a function: `"now"()` calls now().
    name = token.strip('"').lower()
    if kind == "word" and name in _STATEMENTS:
        return f"the subquery or statement that {token} begins"
    # A column may be called `age` or `random`, and of two moments `age` is always the same.
    is_volatile = name in _VOLATILE or (name == "age" and not _has_comma(rest))
    if (kind == "word" and name in _CLOCKS) or (rest.startswith("(") and is_volatile):
        return f"{token}, which differs from one reading to the next"
    if kind == "text" and is_moment(_content(token)):
        return f"{token}, which is another moment at every reading"
    return None


def _has_comma(sql: str) -> bool:
    """Return whether the parentheses with which the text begins hold more than one argument."""
    depth = 0
    for match in _TOKEN.finditer(sql):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(match[0], 0)
        if depth < 1 or (depth == 1 and match[0] == ","):
            return depth == 1
    return False


def _content(token: str) -> str:
    """Return the text between the quotes."""
    mark, opened = ("$", token.find("$", 1)) if token.startswith("$") else ("'", token.find("'"))
    return token[opened + 1 :].partition(mark)[0]
