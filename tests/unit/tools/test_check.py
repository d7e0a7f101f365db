"""A problem shows the line of a schema file that is wrong, with a mark below the place."""

from __future__ import annotations

import pickle
from pathlib import Path

from headrace.errors import HeadraceError, Kind, LocatedError, Place
from headrace.tools.check import Problem


def test_a_line_is_shown_with_a_mark_below_the_place() -> None:
    place = Place(Path("/deploy/users.schema.yml"), 2, 5, "  - txet: name")
    found = Problem("error", LocatedError(Kind.SCHEMA, place, "unknown type", "Did you mean text?"))
    assert found.shown().splitlines() == ["    2 │   - txet: name", "      │     ^"]
    assert found.sentence == (
        "[HEADRACE_SCHEMA] /deploy/users.schema.yml:2:5: unknown type. Did you mean text?"
    )


def test_a_line_that_may_hold_a_password_is_no_part_of_its_error() -> None:
    place = Place(Path("headrace.toml"), 2)
    assert Problem("error", LocatedError(Kind.CONFIG, place, "a mistake")).shown() == ""


def test_only_statements_are_given_as_sql() -> None:
    """A remedy is for people: what it says to run may be another program's command, or a choice."""
    texts = [
        "Run: pip install 'headrace[java]' (a Java 25 of 35 MB), or set JAVA_HOME.",
        "Run: ALTER FUNCTION f SET search_path = SCHEMA, with the schema of those names. Or qualify them.",
    ]
    for text in texts:
        assert Problem("error", HeadraceError(Kind.BINDING, "it fails", text)).as_data()["sql"] == []
    error = HeadraceError(Kind.REPLICA_IDENTITY, "it fails", "Run: ALTER a; or give it a key.")
    error = pickle.loads(pickle.dumps(error.mended_by(["ALTER a;"])))
    assert Problem("error", error).as_data()["sql"] == ["ALTER a;"]
