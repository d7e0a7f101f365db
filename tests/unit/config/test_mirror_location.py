"""Is a place that a lake's format does not know refused by name, and a known one left as it is written?"""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.config.load import load_deployment
from headrace.errors import ErrorGroup, HeadraceError

FILE = """
[source]
type = "postgres"
connection_url = "postgresql://me@localhost/shop"

[mirror]
location = "{}"
format = "{}"

[[mirror.tables]]
tables = ["public.*"]
"""


@pytest.mark.parametrize(
    ("location", "form", "message"),
    [
        ("catalog:prod", "delta", 'needs format = "iceberg"'),
        ("catalog:", "iceberg", "lacks the name of a catalog"),
        ("s3://box/lake", "iceberg", 'name a catalog whose tables are there: "catalog:NAME"'),
        ("hdfs://box/lake", "iceberg", "must be a folder"),
        ("lake", "hudi", "'delta' or 'iceberg'"),
    ],
)
def test_a_place_that_a_format_does_not_know_is_refused(
    location: str, form: str, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text(FILE.format(location, form))
    with pytest.raises((HeadraceError, ErrorGroup), match=message):
        load_deployment(file, {})


@pytest.mark.parametrize("location", ["catalog:prod", "/lake"])
def test_a_place_stays_as_it_is_written(location: str, tmp_path: Path) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text(FILE.format(location, "iceberg"))
    mirror = load_deployment(file, {}).mirror
    assert mirror is not None
    assert mirror.location == location
