"""What an earlier version stored can be read, as docs/reference/versions.md promises.

Each minor version leaves a file, `python tests/unit/test_stored_state.py > tests/data/stored/0.1.json` until
it is released; from then on its file stays as it is.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from headrace.capture.offset import Offset
from headrace.model.lsn import KnownCommit
from headrace.schema.load import load_schema
from headrace.schema.normal import denormalised, normalised
from headrace.sinks.opensearch.shard_history import Identity
from headrace.state import Counters, GenerationState, PipelineState
from headrace.tools.demo.shop import INDEXES, write_deployment
from headrace.version import __version__

STORED = Path(__file__).parents[1] / "data/stored"
COMMIT = KnownCommit(0x1600000010, 4711, 800_000_000_000_000)


def written() -> dict[str, Any]:
    """What this version stores, with something in every place."""
    generation = GenerationState(
        "users",
        "users_ab_1",
        "uuid-1",
        "ab",
        backfilled_at=32,
        as_of=24,
        joined=16,
        published=True,
        pinned="cd",
        frozen="a column is gone",
        request="7",
        history=("h", "i"),
        served_at=1.5,
        schema="what a packed schema is",
    )
    state = PipelineState(
        "7301234567890123456",
        1,
        16384,
        "slot",
        "publication",
        "following",
        16,
        32,
        (generation, GenerationState("users", "users_ab_2", "uuid-2", "ab")),
        {"public.users": 3},
        "what a fingerprint's text is",
        Counters(1, 2, 3, 4, 5),
        ahead=64,
        last=COMMIT,
        began=8,
        deferred_in=Identity("uuid-3", ("j",)),
        standby=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        files = write_deployment(Path(folder), "", "").parent
        schemas = {name: normalised(load_schema(files / f"{name}.schema.yml", name)) for name in INDEXES}
    return {"state": state.to_json(), "offset": Offset(32, 48, 7, COMMIT).to_json(), "schemas": schemas}


def lost(before: object, now: object) -> bool:
    """Whether something is not there any more, or another."""
    if isinstance(before, dict) and isinstance(now, dict):
        return any(name not in now or lost(value, now[name]) for name, value in before.items())
    if isinstance(before, list) and isinstance(now, list):
        return len(before) != len(now) or any(map(lost, before, now))
    return before != now


@pytest.mark.parametrize("file", sorted(STORED.glob("*.json")), ids=lambda file: file.stem)
def test_what_a_version_stored_is_read_and_kept(file: Path) -> None:
    stored = json.loads(file.read_text())
    assert not lost(
        stored["state"], json.loads(json.dumps(PipelineState.from_json(stored["state"]).to_json()))
    )
    assert not lost(stored["offset"], Offset.from_json(stored["offset"]).to_json())
    for name, schema in stored["schemas"].items():
        assert not lost(schema, json.loads(json.dumps(normalised(denormalised(schema, name)))))


def test_this_version_has_its_file() -> None:
    """A field that is new needs a default where it is read, and has to be in this version's file."""
    minor = ".".join(__version__.split(".")[:2])
    assert json.loads((STORED / f"{minor}.json").read_text()) == json.loads(json.dumps(written()))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(written(), indent=1, sort_keys=True) + "\n")
