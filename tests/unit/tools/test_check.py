"""A problem shows the line of a schema file that is wrong, with a mark below the place."""

from __future__ import annotations

from pathlib import Path

from headrace.errors import Kind, LocatedError, Place
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
