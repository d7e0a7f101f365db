"""The code of a transform changes while a deployment runs: no document comes from other code than it says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.postgres import EmbeddedPostgres
from support.town import Town, town_on

CODE = """
import json
import pyarrow as pa

def mark(batch):
    documents = [json.loads(text) for text in batch.column("document").to_pylist()]
    texts = [json.dumps({**one, "city": "MARK " + one["city"]}) for one in documents]
    return pa.RecordBatch.from_arrays([batch.column("id"), pa.array(texts)], names=["id", "document"])
"""


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_rebuild_in_the_run_keeps_the_old_code_and_the_next_start_builds_with_the_new(
    postgres: EmbeddedPostgres,
    opensearch: EmbeddedOpenSearch,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker process that begins meanwhile finds the new file; it must not write, so the run may end."""
    module = tmp_path / "town_marks.py"
    module.write_text(CODE.replace("MARK", "one"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    with town_on(postgres, opensearch.url, tmp_path, "changed_code") as town:
        config = tmp_path / "headrace.toml"
        schema = 'schema = "people.yml"\n'
        config.write_text(config.read_text().replace(schema, f'{schema}transform = "town_marks:mark"\n'))
        town.start()
        town.wait_ready()
        _expect(town, "one")
        town.converges()
        before = town.generation("people")
        module.write_text(CODE.replace("MARK", "two"))
        town.sql("ALTER TYPE mood RENAME VALUE 'low' TO 'down'; UPDATE person SET seen = 1 WHERE id < 50")
        try:
            town.wait_next_generation("people", before)
            town.converges()
            town.terminate()
        except AssertionError:
            assert town.said("HEADRACE_TRANSFORM"), town.last_output()
            town.close()
        town.start()
        town.wait_ready()
        _expect(town, "two")
        town.wait_until(lambda: not town.wrong(), "has documents of the old code", 60)


def _expect(town: Town, mark: str) -> None:
    town.columns = [
        (column, f"'{mark} ' || city" if column == "city" else sql) for column, sql in town.columns
    ]
