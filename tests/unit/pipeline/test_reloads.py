"""Is every setting that needs a restart named, and does everybody who asks for a reload get the answer?"""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import ErrorGroup, HeadraceError, Kind
from headrace.pipeline.project import Project, open_project
from headrace.pipeline.reloads import ReloadResult, check_code, check_fixed, load_checked

CONFIG = """
[source]
type = "postgres"
connection_url = "postgres://localhost/shop"
[sinks.primary]
type = "opensearch"
url = "http://127.0.0.1:9200"
[[index]]
name = "users"
schema = "users.yml"
"""
SCHEMA = "version: 1\ntable: users\nprimary_key: id\nfields: [{ long: id }]\n"


def project(folder: Path, config: str) -> Project:
    (folder / "users.yml").write_text(SCHEMA)
    (folder / "headrace.toml").write_text(config)
    return open_project(folder / "headrace.toml", {})


@pytest.mark.parametrize(
    ("found", "written", "key"),
    [
        ("[source]", '[source]\nslot = "elsewhere"', "source.slot"),
        ("localhost/shop", "localhost/elsewhere", "source.connection_url"),
        (":9200", ":9201", "sinks.primary.url"),
        ("[[index]]", '[server]\npublic_address = "127.0.0.1:1"\n[[index]]', "server.public_address"),
        ("[source]", 'prefix = "elsewhere_"\n[source]', "prefix"),
        ("[[index]]", '[sinks.more]\ntype = "stdout"\n[[index]]', "sinks.more"),
    ],
)
def test_a_setting_that_needs_a_restart_is_refused_by_name(
    tmp_path: Path, found: str, written: str, key: str
) -> None:
    running, now = project(tmp_path, CONFIG), project(tmp_path, CONFIG.replace(found, written))
    errors = check_fixed(running, now)
    assert [error.kind for error in errors] == [Kind.CONFIG]
    assert f": {key} changed, and" in errors[0].cause
    assert "elsewhere" not in errors[0].cause, "no value is quoted"
    assert "Restart" in errors[0].remedy


def test_indexes_and_policies_are_taken_up(tmp_path: Path) -> None:
    more = '[[index]]\nname = "people"\nschema = "users.yml"\non_error = "skip"\n'
    policies = 'on_error = "skip"\nlarge_change = 7\n' + CONFIG + more + "[generations]\nkeep = 3\n"
    assert check_fixed(project(tmp_path, CONFIG), project(tmp_path, policies)) == []


def test_mistakes_of_reading_and_fixed_settings_come_together(tmp_path: Path) -> None:
    running = project(tmp_path, CONFIG)
    now = project(tmp_path, CONFIG.replace("[source]", '[source]\nslot = "elsewhere"'))
    mistake = HeadraceError(Kind.SCHEMA, "a mistake")
    loaded, errors = load_checked(lambda: (now, (mistake,)), running)
    assert loaded is now
    assert [error.kind for error in errors] == [Kind.SCHEMA, Kind.CONFIG]

    def unreadable() -> tuple[Project | None, tuple[HeadraceError, ...]]:
        raise ErrorGroup((mistake, mistake))

    assert load_checked(unreadable, running) == (None, [mistake, mistake])


def test_changed_code_of_a_transform_needs_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "reloaded_transforms.py"
    module.write_text("def shout(document):\n    return document\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    entry = 'schema = "users.yml"\ntransform = "reloaded_transforms:shout"'
    loaded = project(tmp_path, CONFIG.replace('schema = "users.yml"', entry))
    assert check_code(loaded) == []
    module.write_text("def shout(document):\n    return None\n")
    assert [error.kind for error in check_code(loaded)] == [Kind.TRANSFORM]


def test_the_result_names_what_is_another() -> None:
    result = ReloadResult.between({"a": "1", "b": "1", "c": "1"}, {"b": "2", "c": "1", "d": "1"})
    assert result == ReloadResult(added=("d",), removed=("a",), rebuilt=("b",))
    assert str(result) == "added: d; removed: a; being rebuilt: b"
    assert str(ReloadResult()) == "every index is as it was"
