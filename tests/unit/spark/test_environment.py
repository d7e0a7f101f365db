"""Is a PySpark that is too old refused where the source is loaded, by its version, and no other?"""

from __future__ import annotations

import zipfile
from pathlib import Path

import pyspark
import pytest
from pyspark.sql.datasource import DataSource

import pyspark_postgres_cdc
import pyspark_postgres_snapshot
from headrace.errors import HeadraceError, Kind
from headrace.spark.environment import (
    FIRST_OF_DOCUMENTS,
    check_spark_home,
    check_version,
    find_checkpoint_class,
    passes_position,
)


@pytest.mark.parametrize("version", ["4.0.0", "4.1.2", "4.2.0", "4.10.0.dev3", "5.0.0rc1"])
def test_sources_are_served_since_spark_has_sources_in_python(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark.__version__", version)
    check_version("postgres_cdc")


@pytest.mark.parametrize(("version", "does"), [("4.1.4", False), ("4.2.0.dev1", True), ("4.10.0", True)])
def test_only_newer_versions_pass_the_position(version: str, does: bool) -> None:
    assert passes_position(version) is does


@pytest.mark.parametrize("version", ["3.5.7", "4.0.0", "4.1.2", "4.1.0.dev1"])
def test_an_older_one_is_refused_by_its_version_with_what_to_do(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark.__version__", version)
    with pytest.raises(HeadraceError) as raised:
        check_version("documents", FIRST_OF_DOCUMENTS)
    assert raised.value.kind is Kind.DEPENDENCY
    assert f"documents needs PySpark 4.2 or newer, and this is PySpark {version}" in str(raised.value)
    assert "pip install 'pyspark>=4.2'" in str(raised.value)


@pytest.mark.parametrize(
    "source", [pyspark_postgres_cdc.DefaultSource, pyspark_postgres_snapshot.DefaultSource]
)
def test_loading_either_source_there_raises(
    source: type[DataSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark.__version__", "3.5.7")
    with pytest.raises(HeadraceError, match=rf"{source.name()} needs PySpark 4\.0"):
        source({"url": "postgresql://localhost/shop"})


def test_a_spark_home_of_another_version_is_refused(tmp_path: Path) -> None:
    check_spark_home({})
    check_spark_home({"SPARK_HOME": str(tmp_path)})
    (tmp_path / "jars").mkdir()
    jar = tmp_path / "jars/spark-core_2.13-3.5.1.jar"
    jar.touch()
    with pytest.raises(HeadraceError, match=r"SPARK_HOME leads to Spark 3\.5\.1") as caught:
        check_spark_home({"SPARK_HOME": str(tmp_path)})
    assert caught.value.kind is Kind.DEPENDENCY
    jar.rename(jar.with_name(f"spark-core_2.13-{pyspark.__version__}.jar"))
    check_spark_home({"SPARK_HOME": str(tmp_path)})


def test_the_class_that_writes_checkpoints_is_one_of_this_spark() -> None:
    """Spark 4.1 has moved it."""
    jars = Path(pyspark.__file__).parent / "jars"
    name = find_checkpoint_class().replace(".", "/") + ".class"
    assert any(name in zipfile.ZipFile(jar).namelist() for jar in jars.glob("spark-sql_*.jar"))
