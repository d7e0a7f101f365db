"""Is `PostgresSource` the options of `postgres_cdc`, no more and no less?"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

import headrace
from headrace import PostgresSource
from headrace.datasources.options import read_options
from headrace.datasources.source_options import CdcOptions
from headrace.errors import HeadraceError, Kind

URL = "postgresql://ann:s3cret@db/shop"


def test_it_becomes_the_options_that_spark_takes() -> None:
    source = PostgresSource(
        url=URL,
        slot="s",
        tables=["users", 'shop."Odd.one"', "log_*", '"log_*"'],
        where={"users": "age > 17", 'shop."Odd.one"': "a = ','"},
        fail_on_data_loss=False,
        max_rows_per_trigger=5,
        max_bytes_per_trigger="2m",
        new_tables="follow",
    )
    options = source.options()
    assert all(isinstance(value, str) for value in options.values())
    assert set(options) == {
        "url", "slot", "tables", "where", "failOnDataLoss", "maxRowsPerTrigger", "maxBytesPerTrigger",
        "newTables",
    }  # fmt: skip
    assert read_options(CdcOptions, options, "postgres_cdc") == CdcOptions.model_validate(
        {name: getattr(source, name) for name in source.model_fields_set}, by_name=True, by_alias=False
    )
    assert PostgresSource(**options) == source  # type: ignore[arg-type]  # texts, as Spark gives them


def test_columns_are_names_and_not_sql() -> None:
    source = PostgresSource(url=URL, slot="s", tables="t", columns=["id", 'a, "b"'], pre_images=True)
    assert source.columns == {None: ("id", 'a, "b"')}
    again = read_options(CdcOptions, source.options(), "postgres_cdc")
    assert (again.columns, again.pre_images) == (source.columns, True)
    by_table = PostgresSource(url=URL, slot="s", tables="t", exclude_columns={"t": ["a", "b.c"]})
    assert read_options(CdcOptions, by_table.options(), "p").exclude_columns == by_table.exclude_columns


def test_it_cannot_be_altered_and_shows_no_secret() -> None:
    source = PostgresSource(
        database="shop", user="ann", password="s3cret", sslpassword="s3cret", slot="s", tables="t"
    )
    assert "s3cret" not in repr(source) + str(source)
    assert source.options()["password"] == "s3cret"
    with pytest.raises(ValidationError, match="frozen"):
        source.slot = "other"  # type: ignore[misc]
    assert source == PostgresSource(**source.options())  # type: ignore[arg-type]  # texts, as Spark gives them


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"slto": "s"}, "PostgresSource has no option 'slto'. Did you mean 'slot'?"),
        ({}, "PostgresSource needs the option slot"),
        ({"slot": "s", "max_rows_per_trigger": 1, "maxRowsPerTrigger": 2}, "is given twice"),
        ({"slot": "s", "max_rows_per_trigger": 0}, "the option maxRowsPerTrigger of PostgresSource"),
        ({"slot": "s", "host": "localhost"}, "url and host both say"),
    ],
)
def test_what_is_wrong_is_one_line(options: dict[str, object], said: str) -> None:
    with pytest.raises(HeadraceError, match=re.escape(said)) as caught:
        PostgresSource(url=URL, tables="t", **options)  # type: ignore[arg-type]
    assert caught.value.kind is Kind.USAGE
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    assert "s3cret" not in str(caught.value)


def test_a_type_checker_knows_every_option_that_is_there() -> None:
    """The signature stands in the source for type checkers alone, so nothing else compares the two."""
    text = Path(inspect.getfile(PostgresSource)).read_text()
    signature = text[text.index("def __init__") : text.index(") -> None: ...")]
    written = set(re.findall(r"^\s+(\w+): ", signature, re.MULTILINE))
    assert written == set(PostgresSource.model_fields)


def test_importing_headrace_loads_little() -> None:
    heavy = ("pyspark", "psycopg", "pydantic", "pyarrow")
    code = f"import headrace, sys; print([name for name in {heavy} if name in sys.modules])"
    path = str(Path(headrace.__file__).parents[1])
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": path}
    )
    assert found.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="no attribute 'PostgresSink'"):
        headrace.PostgresSink  # noqa: B018
