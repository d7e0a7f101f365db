"""Explain why a user's function fails whose body finds its names only under another search_path."""

from __future__ import annotations

import re

import psycopg

from headrace.errors import HeadraceError, Kind

_UNKNOWN_NAME = frozenset({"42883", "42P01", "42704", "3F000"})
"""No such function, table, type or schema."""
_FUNCTION = re.compile(
    r'SQL function "(?P<name>.+?)" (?:during|statement)|function (?P<signature>.+?) line \d'
)


def unknown_name_in_function(error: psycopg.Error, refusal: HeadraceError) -> HeadraceError:
    """Return the error that names the function whose body does not find a name; else `refusal`.

    Args:
        error: the server's error; that it is of a function's body is known from its `internal_query`.
        refusal: the error that it is turned into otherwise.
    """
    if error.sqlstate not in _UNKNOWN_NAME or error.diag.internal_query is None:
        return refusal
    found = _FUNCTION.search(error.diag.context or "")  # the innermost function is the first
    name = "" if found is None else (found["signature"] or found["name"])
    return HeadraceError(
        Kind.BINDING,
        f"the function {name or 'that is called'} does not find what its body names: {refusal.cause}",
        f"Run: ALTER FUNCTION {name or 'NAME'} SET search_path = SCHEMA, with the schema of those names. Or "
        "qualify the names in its body: Headrace reads with search_path = pg_catalog.",
    )
