"""What does a text become, and what is said where it cannot become anything?"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import HeadraceError, Kind
from headrace.model.types import TYPES
from headrace.model.value_type import Attribute, DatabaseType, ValueType, resolve
from headrace.model.values import convert, convert_all, convert_fitting, json_form, moments, rescued
from headrace.model.values.conversion import UnreadableError
from headrace.model.values.texts import array_tree, composite_texts, map_pairs, multirange_texts, range_text

_ROWS = {name: row for row in TYPES for name in row.names}
DECIMAL = (10 << 16) + 2 + 4


def kind(name: str, modifier: int = -1, dimensions: int = 0) -> ValueType:
    """A type by its name; with a modifier; with dimensions its array."""
    extension = _ROWS[name].extension
    base = DatabaseType(1, "pg_catalog", name, "base", extension=extension)
    array = DatabaseType(2, "pg_catalog", f"_{name}", "array", 1)
    found = Attribute("c", 2 if dimensions else 1, modifier, dimensions)
    return resolve(found, {1: base, 2: array})


def read(type_: ValueType, *texts: str | None) -> list[Any]:
    found: list[Any] = convert_all(type_, pa.array(texts, pa.string()), "public.t.c").to_pylist()
    return found


def test_an_empty_column_is_typed_for_every_type() -> None:
    for name in _ROWS:
        converted = convert(kind(name), pa.array([], pa.string()), "public.t.c")
        assert (converted.values.type, len(converted.values)) == (kind(name).arrow, 0)
        assert len(json_form(kind(name), pa.array([], pa.string()), "public.t.c")) == 0


def test_a_column_of_nulls_is_null_for_every_type() -> None:
    nulls = pa.array([None, None], pa.string())
    for name in _ROWS:
        assert convert_all(kind(name), nulls, "public.t.c").to_pylist() == [None, None]
        assert json_form(kind(name), nulls, "public.t.c").to_pylist() == [None, None]


COLUMNS = {
    "bool": ["t", "f", None, "t"],
    "bytea": ["\\x", "\\x00ff", None, "\\x616263"],
    "date": ["infinity", "2024-02-29", None, "0044-03-15 BC"],
    "timestamptz": ["infinity", "2024-02-29 12:00:00+00", None, "0044-03-15 00:00:00+00 BC"],
    "money": ["$1.00", "-$1,234.50", None, "$0.05"],
    "numeric": ["1.5", "NaN", None, "2"],
    "hstore": ['"a"=>"1"', "", None, '"a"=>NULL'],
    "int2vector": ["1 2", "", None, "3"],
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize(
    "form",
    [
        lambda whole: whole[1:3],
        lambda whole: pa.chunked_array([whole[1:2], whole[2:3]]),
        lambda whole: whole[1:3].cast(pa.binary()),
        lambda whole: pa.chunked_array([whole[0:0], whole[1:3].cast(pa.string())]),
    ],
    ids=["slice", "chunks", "bytes", "empty chunk"],
)
def test_it_does_not_matter_how_the_text_lies_in_memory(
    name: str, form: Callable[[pa.StringArray], Any]
) -> None:
    type_, whole = kind(name), pa.array(COLUMNS[name], pa.string())
    found = convert(type_, form(whole), "public.t.c").values
    assert found.equals(convert(type_, whole, "public.t.c").values.slice(1, 2))
    assert json_form(type_, form(whole), "public.t.c").equals(
        json_form(type_, whole, "public.t.c").slice(1, 2)
    )


SECRET = "s3cret"
BROKEN = {
    "bool": ["true", "", SECRET],
    "int2": ["32768", "1.5", "", SECRET],
    "int8": ["9223372036854775808"],
    "float8": ["", SECRET],
    "numeric(10,2)": ["1.555", "123456789.00", SECRET],
    "bytea": ["00ff", "\\x0", "\\xzz", "\\x0G", "", SECRET],
    "date": ["2024-02-30", "2024-2-1", SECRET, "24-01-01 BC"],
    "timestamp": ["2024-01-01 00:00:00+00", SECRET, "2024-01-01T00:00:00 BC"],
    "timestamptz": ["2024-01-01 00:00:00", SECRET],
    "hstore": ["a=>1", '"a"=>"1" "b"=>"2"', SECRET],
    "int2vector": ["1,2", SECRET],
    "int4[]": ["", "{", "}", "{1", "1}", "{1}}", "{{1}", "{1}{2}", "{,1}", '{"1}', "{1\\", SECRET],
    "money": ["$92,233,720,368,547,758,080,000.00", SECRET, "$1.5", "1", "$1.500"],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in BROKEN.items() for text in texts])
def test_a_text_that_no_value_has_is_an_error_that_names_column_and_type_but_no_value(
    name: str, text: str
) -> None:
    type_ = (
        kind(name.removesuffix("[]"), dimensions=1)
        if name.endswith("[]")
        else kind(name.partition("(")[0], DECIMAL)
    )
    with pytest.raises(HeadraceError, match=r"a value of public\.t\.c cannot be read as") as caught:
        convert(type_, pa.array([text]), "public.t.c")
    assert caught.value.kind is Kind.VALUE
    assert type_.name in str(caught.value)
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_text_that_is_no_utf_8_is_an_error() -> None:
    with pytest.raises(HeadraceError, match="UTF-8"):
        convert(kind("text"), pa.array([b"\xff"]), "public.t.c")


def test_where_everything_has_to_fit_the_error_says_how_much_does_not() -> None:
    texts = pa.array(["1.00", "NaN", "NaN"])
    with pytest.raises(HeadraceError, match=r"2 of 3 values of public\.t\.c \(numeric\(10,2\)\)") as caught:
        convert_all(kind("numeric", DECIMAL), texts, "public.t.c")
    assert "decimal(10,2)" in str(caught.value)
    assert convert_all(kind("numeric", DECIMAL).as_text, texts, "public.t.c").equals(texts)


def test_what_does_not_fit_can_stand_beside_the_columns_instead() -> None:
    columns = {
        "price": ("numeric", ["NaN", "1.00", None]),
        "at": ("timestamp", ["294276-01-01 00:00:00"] * 2 + [None]),
    }
    found = {
        name: (texts := pa.array(values, pa.string()), convert(kind(of, DECIMAL), texts, name))
        for name, (of, values) in columns.items()
    }
    assert rescued(found, 3).to_pylist() == [
        '{"price": "NaN", "at": "294276-01-01 00:00:00"}',
        '{"at": "294276-01-01 00:00:00"}',
        None,
    ]
    assert rescued({}, 2).equals(pa.nulls(2, pa.string()))
    besides: dict[int, dict[str, str | None]] = {0: {"new": None}, 2: {"new": "ü"}}
    assert rescued(found, 3, besides).to_pylist() == [
        '{"new": null, "price": "NaN", "at": "294276-01-01 00:00:00"}',
        '{"at": "294276-01-01 00:00:00"}',
        '{"new": "ü"}',
    ]


def test_texts_of_another_type_do_not_fit_and_end_nothing() -> None:
    texts = pa.array(["7", "seven", None, "8", "seven", "99999999999"])
    found = convert_fitting(kind("int4"), texts, "public.t.c")
    assert found.values.equals(pa.array([7, None, None, 8, None, None], pa.int32()))
    assert found.unfit.tolist() == [1, 4, 5]
    fine = convert_fitting(kind("int4"), pa.array(["7", None]), "public.t.c")
    assert (fine.values.to_pylist(), fine.unfit.tolist()) == ([7, None], [])


def test_amounts_of_money_in_other_locales() -> None:
    assert read(
        kind("money"), "1.234,50 €", "(€ 0.05)", "\u22121 234,50 kr", "-$92,233,720,368,547,758.08"
    ) == [Decimal("1234.50"), Decimal("-0.05"), Decimal("-1234.50"), Decimal("-92233720368547758.08")]


def test_a_zone_with_minutes_and_seconds_is_understood() -> None:
    [found] = convert(kind("timestamptz"), pa.array(["0044-03-15 12:00:00+04:56:02 BC"]), "t.c").values.cast(
        pa.int64()
    )
    [other] = convert(kind("timestamptz"), pa.array(["0044-03-15 07:03:58+00 BC"]), "t.c").values.cast(
        pa.int64()
    )
    assert found == other


@given(st.dates())
def test_a_date_of_any_length_has_the_day_that_python_gives_it(day: date) -> None:
    text, wide = day.isoformat(), f"0{day.isoformat()}"
    assert read(kind("date"), text, wide) == [day, day]


@given(st.dates(), st.integers(-24, 700))
def test_the_calendar_repeats_itself_every_400_years(day: date, cycles: int) -> None:
    """Beyond Python's own calendar: 400 years are 146,097 days, before 1 BC and after 9999 too."""
    year = day.year + 400 * cycles
    written = f"{year:04d}-{day:%m-%d}" if year > 0 else f"{1 - year:04d}-{day:%m-%d} BC"
    [found] = convert(kind("date"), pa.array([written]), "t.c").values.cast(pa.int32()).to_pylist()
    assert found == (day - date(1970, 1, 1)).days + 146_097 * cycles


def test_the_infinities_are_the_dates_that_are_documented() -> None:
    """And farther from the ends of 64 bits than any zone is from another."""
    years = (294_247 - 2247, -290_000 - 2000)
    for ends, unit in ((moments.DATE_ENDS, 1), (moments.TIMESTAMP_ENDS, 86_400_000_000)):
        found = [
            (end // unit - year // 400 * 146_097)
            for end, year in zip((ends.greatest, ends.least), years, strict=True)
        ]
        assert [date(1970, 1, 1) + timedelta(days) for days in found] == [date(2247, 1, 1), date(2000, 1, 1)]
    reach = max(-moments.TIMESTAMP_ENDS.least, moments.TIMESTAMP_ENDS.greatest)
    assert reach + 3 * 86_400_000_000 < 2**63


PARSERS: list[Callable[[str], object]] = [
    array_tree,
    lambda text: composite_texts(text, 2),
    range_text,
    multirange_texts,
    map_pairs,
]


@given(st.text(alphabet='{}[]()",\\=>aN UL1:\n', max_size=12), st.sampled_from(PARSERS))
def test_no_text_makes_a_parser_fail_in_another_way_or_hang(
    text: str, parse: Callable[[str], object]
) -> None:
    with suppress(UnreadableError):
        parse(text)
