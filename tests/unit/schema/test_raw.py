"""A raw filter is a function of its row, as far as its words tell; what it calls is for the catalog."""

from __future__ import annotations

import pytest

from headrace.schema.raw import called_functions, is_moment, raw_problem


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("at > 'now'", "'now'"),
        ("at > 'TODAY'::timestamptz", "'TODAY'"),
        ("at > timestamp ' tomorrow '", "' tomorrow '"),
        ("at > E'yesterday 12:00'", "E'yesterday 12:00'"),
        ("at > $$now$$", "$$now$$"),
        ("at > '10:00 today'", "'10:00 today'"),
        ("age(at) > '1 day'", "age"),
        ("age((greatest(at, b))) > '1 day'", "age"),
        ("age(array[a, b][1]) > '1 day'", "age"),
        ("at > $a$now$a$", "$a$now$a$"),
        ("a IN (VALUES (1))", "VALUES"),
        ("random () < 1", "random"),
        ("a = current_user", "current_user"),
    ],
)
def test_what_differs_from_one_reading_to_the_next_is_refused_unless_it_is_accepted(
    sql: str, named: str
) -> None:
    """Decision 0014."""
    assert named in (raw_problem(sql) or "")
    assert raw_problem(sql, unsafe=True) is None


@pytest.mark.parametrize("sql", ["", " ", "a;b", "a -- b", "a /* b", "a) OR (b", "(a", "a = $1", "a = 'b"])
def test_what_could_end_the_condition_is_never_accepted(sql: str) -> None:
    assert raw_problem(sql)
    assert raw_problem(sql, unsafe=True)


@pytest.mark.parametrize(
    "sql",
    [
        "state = 'nowhere'",
        "state = 'today is fine'",
        "state = 'available now'",
        "a = 'it''s now'",
        '"now" = 1',
        "at > '2024-01-01'",
        "age(at, timestamp '2024-01-01') > '1 day'",
        "age (lower(span), b) > '1 day' AND age > 3",
    ],
)
def test_texts_that_only_look_like_moments_are_texts(sql: str) -> None:
    assert raw_problem(sql) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", True),
        ("Today 10:00", True),
        (" 10:00 today ", True),
        ("10:00 PM TOMORROW +02", True),
        ("today 9:30 am CET", True),
        ("yesterday Europe/Berlin", True),
        ("epoch", False),
        ("infinity", False),
        ("", False),
    ],
)
def test_moments(text: str, *, expected: bool) -> None:
    assert is_moment(text) is expected


def test_functions_are_named_as_the_catalog_has_them() -> None:
    sql = """Lower(a) = 'f(x)' AND Public . Found ("B") AND "My Schema"."F""x"(1) AND a IN (b::numeric(3))"""
    assert list(called_functions(sql)) == [
        (None, "lower"),
        ("public", "found"),
        ("My Schema", 'F"x'),
        (None, "in"),
        (None, "numeric"),
    ]
