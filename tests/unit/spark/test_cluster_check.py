"""What is said of an executor that is not as it should be."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.spark.cluster_check import compare, list_differences, start_error
from headrace.spark.executor_probe import probe

_FIX = (
    "--conf spark.archives=environment.tar.gz#environment "
    "--conf spark.pyspark.python=./environment/bin/python"
)


def report(**other: Any) -> dict[str, Any]:
    return {
        "host": "worker-7",
        "process": 1,
        "python": "3.12",
        "executable": "/usr/bin/python3",
        "versions": {"headrace": "1.0.0", "pyspark": "4.3.0", "pyarrow": "21.0.0", "psycopg": "3.2.9"},
        "lacks": [],
        "unreachable": [],
        "away": {},
        **other,
    }


def versions(**other: str | None) -> dict[str, Any]:
    return {"versions": report()["versions"] | other}


def test_a_process_is_like_itself() -> None:
    found = probe(("json",))
    assert found["lacks"] == []
    compare(found, [found])


def test_a_module_that_is_not_there_is_named_with_its_reason() -> None:
    found = probe(("no_such_module_of_ours",))
    with pytest.raises(
        HeadraceError, match=r"no_such_module_of_ours cannot be imported \(ModuleNotFoundError: "
    ):
        compare(probe(()), [found])


def test_a_kind_of_sinks_that_is_not_there_is_named() -> None:
    found = probe((), kinds=("no_such_kind",))
    assert found["lacks"] == ["no installed package offers sinks of the kind 'no_such_kind'"]
    with pytest.raises(HeadraceError, match="sinks of the kind 'no_such_kind'") as caught:
        compare(probe(()), [found])
    assert (caught.value.kind, _FIX in caught.value.remedy) == (Kind.DEPENDENCY, True)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"python": "3.11"}, ["Python 3.11 for 3.12"]),
        (versions(headrace="1.0.1"), ["headrace 1.0.1 for 1.0.0"]),
        (versions(pyspark="4.2.1"), ["pyspark 4.2.1 for 4.3.0"]),
        (versions(pyarrow="18.1.0"), ["pyarrow 18.1.0 for 21.0.0"]),
        (versions(pyarrow="21.0.1", psycopg="3.3.0"), []),
        (versions(psycopg=None), ["no psycopg"]),
        (
            {**versions(psycopg=None), "lacks": ["headrace.pipeline.worker.worker cannot be imported"]},
            ["no psycopg"],
        ),
        ({"lacks": ["no package offers sinks of it"]}, ["no package offers sinks of it"]),
    ],
)
def test_what_differs_is_told(other: dict[str, Any], said: list[str]) -> None:
    assert list_differences(report(), report(**other)) == said


def test_the_error_names_the_machine_and_the_line_that_helps() -> None:
    with pytest.raises(HeadraceError) as caught:
        compare(report(), [report(), report(python="3.11")])
    assert caught.value.kind is Kind.DEPENDENCY
    assert "worker-7 (/usr/bin/python3)" in caught.value.cause
    assert _FIX in caught.value.remedy


def test_a_server_that_an_executor_does_not_reach_is_an_error_of_its_kind() -> None:
    there = report(unreachable=[("SINK_UNREACHABLE", "http://search:9200 does not answer")])
    with pytest.raises(HeadraceError, match="worker-7: http://search:9200 does not answer") as caught:
        compare(report(), [there])
    assert caught.value.kind is Kind.SINK_UNREACHABLE


_AT = "(TID 3) (10.0.0.5 executor 1)"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            f"Lost task 0.3 {_AT}: X: [PYTHON_VERSION_MISMATCH] Python in worker has 3.9.\n\tat org",
            "Python in worker has 3.9",
        ),
        (
            f'x {_AT}: java.io.IOException: Cannot run program "python9": error=2, No such file\n\tat java',
            'Cannot run program "python9": error=2, No such file',
        ),
        (
            f"x {_AT}: Error from worker:\n  python3: (ModuleNotFoundError: No module named 'pyspark')",
            "ModuleNotFoundError: No module named 'pyspark'",
        ),
    ],
    ids=["version", "program", "module"],
)
def test_a_python_that_does_not_even_start_is_told_with_the_line_that_helps(text: str, why: str) -> None:
    error = start_error(text)
    assert error.kind is Kind.DEPENDENCY
    assert error.cause == f"the executor on 10.0.0.5 cannot run our Python: {why}"
    assert _FIX in error.remedy


def test_any_other_failure_is_sparks_own_in_one_line() -> None:
    error = start_error("An error occurred\n\tat somewhere")
    assert error.kind is Kind.SPARK
    assert "\n" not in str(error)
