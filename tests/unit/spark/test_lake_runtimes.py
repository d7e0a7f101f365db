"""Does a session get Delta where there is one for this PySpark, and is it said where there is none?"""

from __future__ import annotations

import os
from pathlib import Path

import pyspark
import pytest

from headrace.errors import HeadraceError, Kind
from headrace.spark.lake_runtimes import DELTA, ICEBERG

_EXTENSIONS = "spark.sql.extensions"
_HAS_DELTA = pyspark.__version__.startswith(tuple(DELTA.pins))


def test_settings_that_name_delta_stay_as_they_are() -> None:
    given = {_EXTENSIONS: f"my.Own,{DELTA.settings[_EXTENSIONS]}", "spark.jars": "delta.jar"}
    assert DELTA.with_settings(given, {}) == given


@pytest.mark.skipif(_HAS_DELTA, reason="there is Delta for this PySpark")
def test_where_there_is_no_delta_the_versions_are_named_that_have_one() -> None:
    with pytest.raises(HeadraceError) as raised:
        DELTA.with_settings({}, os.environ)
    assert raised.value.kind is Kind.DEPENDENCY
    text = str(raised.value)
    assert pyspark.__version__ in text
    assert all(f"{pins[0][1]} for PySpark {minor}" in text for minor, pins in DELTA.pins.items())
    assert "pip install 'pyspark==4.2.*'" in text
    assert 'engine = "local"' in text


@pytest.mark.skipif(not _HAS_DELTA, reason="there is no Delta for this PySpark")
def test_the_jars_and_extensions_that_are_given_stay_beside_deltas() -> None:
    settings = DELTA.with_settings({"spark.jars": "/my.jar", _EXTENSIONS: "my.Own"}, os.environ)
    mine, *deltas = settings["spark.jars"].split(",")
    assert mine == "/my.jar"
    own = f"delta-spark_{pyspark.__version__[:3]}_2.13"
    assert [Path(jar).name.partition("-4.4")[0] for jar in deltas] == [own, "delta-storage"]
    assert settings[_EXTENSIONS] == f"my.Own,{DELTA.settings[_EXTENSIONS]}"


@pytest.mark.skipif(
    ICEBERG.packages(pyspark.__version__) is None, reason="there is no Iceberg for this PySpark"
)
def test_the_jars_of_iceberg_come_beside_those_that_are_given() -> None:
    settings = ICEBERG.with_settings({"spark.jars": "/my.jar"}, os.environ)
    mine, runtime, catalog = (Path(jar).name for jar in settings["spark.jars"].split(","))
    assert mine == "my.jar"
    assert runtime.startswith(f"iceberg-spark-runtime-{pyspark.__version__[:3]}_2.13-")
    assert catalog.startswith("sqlite-jdbc-")
    assert ICEBERG.with_settings(settings, os.environ) == settings
