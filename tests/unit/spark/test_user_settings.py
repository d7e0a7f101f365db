"""What the user says of Spark, and in which order it counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.spark.settings import chosen_master, given_settings, parse_defaults, parse_settings


def test_a_setting_is_a_key_and_all_behind_the_first_sign() -> None:
    assert parse_settings(["spark.a=1", "spark.b=-Dx=y z", "spark.a=2", "spark.c="]) == {
        "spark.a": "2",
        "spark.b": "-Dx=y z",
        "spark.c": "",
    }


@pytest.mark.parametrize("text", ["spark.a", "=1", "a=1", "spark.=1", ""])
def test_anything_else_is_wrong_usage(text: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        parse_settings([text])
    assert caught.value.kind is Kind.USAGE


def test_an_error_does_not_repeat_a_value() -> None:
    with pytest.raises(HeadraceError) as caught:
        parse_settings(["sparc.authenticate.secret=geheim"])
    assert "geheim" not in str(caught.value)


def test_a_file_of_defaults_is_read_as_spark_reads_it() -> None:
    text = """
# a comment
! another
spark.master            spark://there:7077
spark.executor.memory=4g
spark.driver.extraJavaOptions : -Da=b  -Dc=d
other.key  1
spark.alone
"""
    assert parse_defaults(text) == {
        "spark.master": "spark://there:7077",
        "spark.executor.memory": "4g",
        "spark.driver.extraJavaOptions": "-Da=b  -Dc=d",
    }


@pytest.mark.parametrize("variable", ["SPARK_CONF_DIR", "SPARK_HOME"])
def test_the_command_line_wins_over_the_file(tmp_path: Path, variable: str) -> None:
    folder = tmp_path if variable == "SPARK_CONF_DIR" else tmp_path / "conf"
    folder.mkdir(exist_ok=True)
    (folder / "spark-defaults.conf").write_text("spark.a 1\nspark.b 1\n")
    assert given_settings(["spark.b=2"], {variable: str(tmp_path)}) == {"spark.a": "1", "spark.b": "2"}


def test_without_a_file_there_is_the_command_line(tmp_path: Path) -> None:
    assert given_settings(["spark.b=2"], {"SPARK_CONF_DIR": str(tmp_path)}) == {"spark.b": "2"}
    assert given_settings([], {}) == {}


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").mkdir()
    with pytest.raises(HeadraceError, match=r"spark-defaults\.conf cannot be read"):
        given_settings([], {"SPARK_CONF_DIR": str(tmp_path)})


def test_the_master_is_the_options_then_the_settings_then_this_machine() -> None:
    assert chosen_master("spark://a:1", [], {"spark.master": "spark://b:1"}) == "spark://a:1"
    assert chosen_master(None, [], {"spark.master": "spark://b:1"}) == "spark://b:1"
    assert chosen_master(None, [], {}) == "local[*]"


def test_two_masters_on_one_command_line_are_one_too_many() -> None:
    with pytest.raises(HeadraceError, match="two masters"):
        chosen_master("local[2]", ["spark.master=spark://b:1"], {"spark.master": "spark://b:1"})
