"""Ours are defaults; the user's stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.spark.settings import is_local, is_relative, settings, with_absolute_files

_CLUSTER = "spark://there:7077"
_LOG = Path("/run/a folder/log4j2.properties")


def made(master: str, **given: str) -> dict[str, str]:
    return settings(
        master,
        "1g",
        Path("/run"),
        _LOG,
        {f"spark.{name.replace('_', '.')}": one for name, one in given.items()},
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("driver_memory", "3g"),
        ("ui_enabled", "true"),
        ("driver_host", "10.0.0.7"),
        ("driver_bindAddress", "0.0.0.0"),
        ("local_dir", "/big"),
        ("app_name", "shop"),
        ("driver_extraJavaOptions", "-XX:+UseG1GC"),
        ("python_unix_domain_socket_enabled", "false"),
        ("executor_memory", "2g"),
    ],
)
@pytest.mark.parametrize("master", ["local[*]", _CLUSTER])
def test_what_the_user_gives_stands(master: str, name: str, value: str) -> None:
    assert made(master, **{name: value})[f"spark.{name.replace('_', '.')}"] == value


def test_the_drivers_log_and_its_end_without_memory_stay_beside_a_users_java_options() -> None:
    found = made(_CLUSTER, driver_extraJavaOptions="-XX:+UseG1GC", driver_defaultJavaOptions="-Da=b")
    always = f"-Dlog4j2.configurationFile={_LOG.as_uri()} -XX:+ExitOnOutOfMemoryError"
    assert found["spark.driver.defaultJavaOptions"] == f"{always} -Da=b"


def test_a_driver_of_a_cluster_is_not_bound_to_the_loopback_interface() -> None:
    assert made("local[2]")["spark.driver.host"] == "127.0.0.1"
    assert not {"spark.driver.host", "spark.driver.bindAddress"} & made(_CLUSTER).keys()


@pytest.mark.parametrize(
    ("master", "local"),
    [("local", True), ("local[*]", True), ("local[2,3]", True), ("local-cluster[2,1,1024]", False)],
)
def test_a_cluster_of_processes_is_no_local_master(master: str, local: bool) -> None:
    assert is_local(master) is local


@pytest.mark.parametrize(
    ("python", "relative"),
    [("./environment/bin/python", True), ("environment/bin/python", True), ("/usr/bin/python3", False)],
)
def test_an_interpreter_without_a_folder_is_looked_for_on_path(python: str, relative: bool) -> None:
    assert is_relative(python) is relative
    assert not is_relative("python3")


def test_files_that_are_named_relatively_are_meant_where_the_command_runs() -> None:
    given = {
        "spark.archives": "environment.tar.gz#environment, hdfs:///x.zip",
        "spark.jars": "/a.jar,b.jar",
        "spark.eventLog.dir": "events",
    }
    assert with_absolute_files(given, Path("/home/me")) == {
        "spark.archives": "/home/me/environment.tar.gz#environment,hdfs:///x.zip",
        "spark.jars": "/a.jar,/home/me/b.jar",
        "spark.eventLog.dir": "events",
    }


def test_sockets_end_with_the_run_that_made_them() -> None:
    name = "spark.python.unix.domain.socket.dir"
    assert made("local[2]")[name] == "/run"
    assert name not in made(_CLUSTER), "executors elsewhere do not have the folder"
    assert name not in settings("local[2]", "1g", Path("/" + "x" * 60), _LOG, {}), (
        "the name would be too long"
    )
