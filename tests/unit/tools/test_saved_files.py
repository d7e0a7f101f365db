"""Files of a deployment are written where a run could load them, and else stay as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.config.load import load_deployment
from headrace.errors import HeadraceError
from headrace.tools.saved_files import save_files

CONFIG = """
[source]
type = "postgres"
connection_url = "postgresql://127.0.0.1:9/nowhere"
[[index]]
name = "things"
schema = "things.schema.yml"
settings_file = "things.settings.json"
"""
SCHEMA = "version: 1\ntable: things\nprimary_key: id\nfields:\n  - long: id\n"
FILES = {
    "headrace.toml": CONFIG,
    "things.schema.yml": SCHEMA,
    "things.settings.json": "{}",
    "things_transform.py": "def things(batch):\n    return batch\n",
}


def save(folder: Path, **files: str) -> None:
    save_files(folder, {folder / name: text.encode() for name, text in files.items()}, {})


def found(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in folder.iterdir()}


def test_files_that_name_one_another_are_written_together(tmp_path: Path) -> None:
    save(tmp_path / "new", **FILES)
    assert found(tmp_path / "new") == FILES
    assert [entry.name for entry in load_deployment(tmp_path / "new/headrace.toml", {}).indexes] == ["things"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("headrace.toml", CONFIG.replace("things", "2024_things", 1), "'2024_things' is no name"),
        ("headrace.toml", CONFIG.replace('"things"', '"my-things"'), "'my-things' is no name"),
        ("headrace.toml", CONFIG + CONFIG[CONFIG.index("[[") :], "stands twice"),
        ("headrace.toml", CONFIG + "[source", "not TOML"),
        ("headrace.toml", CONFIG.replace("things.schema", "other.schema"), "is not there"),
        ("headrace.toml", CONFIG.replace("things.settings", "other.settings"), "is not there"),
        ("things.schema.yml", SCHEMA.replace("long", "lnog"), "unknown type 'lnog'"),
        ("things.schema.yml", SCHEMA + "\t- x", "things.schema.yml:6"),
    ],
)
def test_one_mistake_leaves_all_as_they_were(tmp_path: Path, name: str, text: str, said: str) -> None:
    folder = tmp_path / "there"
    with pytest.raises(HeadraceError) as caught:
        save(folder, **{**FILES, name: text})
    assert "nothing is written" in str(caught.value)
    assert said in str(caught.value)
    assert not folder.exists()
    save(folder, **FILES)
    with pytest.raises(HeadraceError, match="nothing is written"):
        save(folder, **{**FILES, "things_transform.py": "# another\n", name: text})
    assert found(folder) == FILES


def test_files_that_were_not_loaded_are_not_found_afterwards(tmp_path: Path) -> None:
    with pytest.raises(HeadraceError):
        save(tmp_path, **FILES, **{"b.schema.yml": "("})
    with pytest.raises(HeadraceError, match="cannot be read"):
        load_deployment(tmp_path / "headrace.toml", {})
