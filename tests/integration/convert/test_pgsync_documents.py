"""What PGSync's examples say of a document is what Headrace assembles from the converted files.

The schema.json and its tables are made up in the shapes of all examples that PGSync's repository has.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headrace.config.deployment import Deployment, IndexEntry
from headrace.config.load import load_deployment
from headrace.convert import Conversion, convert_pgsync
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.pipeline.preview import open_preview
from headrace.postgres.connection import connect
from headrace.schema.load import load_schema
from support.pgsync_oracle import Town, documents

DATA = Path(__file__).parents[2] / "data" / "pgsync"
INDEXES: dict[str, dict[str, Any]] = {
    index["index"]: index for index in json.loads((DATA / "schema.json").read_text())
}


@dataclass(frozen=True)
class Converted:
    """The town's database, and the deployment that the conversion has written."""

    url: str
    town: Town
    conversion: Conversion
    deployment: Deployment
    entries: Mapping[str, IndexEntry]


@pytest.fixture(scope="module")
def converted(postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Converted]:
    url = postgres.create_database("town")
    with connect(url) as connection:
        connection.execute((DATA / "tables.sql").read_bytes())
    conversion = convert_pgsync(DATA / "schema.json", None, url, {})
    folder = tmp_path_factory.mktemp("converted")
    for name, text in conversion.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    deployment = load_deployment(folder / "headrace.toml", {})
    sys.path.insert(0, str(folder))
    yield Converted(
        url, Town.read(url), conversion, deployment, {entry.name: entry for entry in deployment.indexes}
    )
    sys.path.remove(str(folder))
    postgres.drop_database("town")


def assembled(converted: Converted, name: str) -> dict[str, Any]:
    """What `headrace preview` shows."""
    entry = converted.entries[name]
    spec = dataclasses.replace(load_schema(entry.schema_path, name), transform=entry.transform)
    with open_preview(converted.url, spec) as preview:
        return {document.id: json.loads(document.body or b"null") for document in preview.first(1000)}


def in_order(value: Any) -> Any:
    """With each list in one order: PGSync's have none."""
    if isinstance(value, dict):
        return {key: in_order(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted(map(in_order, value), key=lambda item: json.dumps(item, sort_keys=True))
    return value


@pytest.mark.parametrize("name", INDEXES)
def test_documents_are_what_pgsync_promises(converted: Converted, name: str) -> None:
    wanted = documents(INDEXES[name], converted.town)
    assert len(wanted) > 1
    assert in_order(assembled(converted, name)) == in_order(wanted)
