"""A database and the generations of its documents, for tests that drive a worker by hand."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg

from headrace.catalog import Catalog, read_catalog
from headrace.model.lsn import Lsn, parse_lsn
from headrace.pipeline.worker.plan import DocumentsPlan, Endpoints
from headrace.postgres.session import ReadSession
from headrace.resolution import plan_resolution
from headrace.schema.load import load_schema
from headrace.schema.tree import IndexSpec
from headrace.sinks.opensearch import (
    Client,
    Endpoint,
    Generation,
    Generations,
    IndexOptions,
    WriterOptions,
    mapping,
)
from headrace.state import StateKey


def documents_plan(
    specs: Mapping[str, IndexSpec], catalog: Catalog, targets: Mapping[str, str], **more: Any
) -> DocumentsPlan:
    """Return a plan without a policy for refused documents; `more` are other fields of it."""
    fields: dict[str, Any] = {
        "writer": WriterOptions(),
        "key": StateKey("none", ""),
        "skip_rejected": frozenset(),
        "large_change": 50_000,
    }
    resolution = plan_resolution(specs.values(), catalog)
    return DocumentsPlan(
        specs=specs, catalog=catalog, resolution=resolution, targets=targets, **fields | more
    )


class IndexedDatabase:
    """A database, a schema file of it, and new generations for its documents.

    Args:
        url: the database, which has the tables.
        node: a node of OpenSearch.
        folder: for the schema file.
        schema: the schema file's text.
        name: of the index.
    """

    def __init__(self, url: str, node: str, folder: Path, schema: str, name: str = "people") -> None:
        self.url = url
        self.name = name
        self.writer = psycopg.connect(url, autocommit=True)
        self.client = Client(Endpoint((node,)))
        self.connections = Endpoints(url, Endpoint((node,)))
        file = folder / f"{name}.schema.yml"
        file.write_text(schema)
        self.spec = load_schema(file, name)
        with ReadSession(url) as session:
            self.catalog = read_catalog(session, self.spec.tables())
        self.prefix = f"t{uuid.uuid4().hex[:8]}_"
        self.generations = Generations(self.client, self.prefix)

    def new_generation(self, options: IndexOptions | None = None) -> Generation:
        """Create one more generation of the index."""
        return self.generations.create(self.name, "ab", mapping(self.spec, options or IndexOptions()))

    def plan_of(self, generation: Generation, **more: Any) -> DocumentsPlan:
        """Return the plan that writes a generation."""
        return documents_plan({self.name: self.spec}, self.catalog, {self.name: generation.target}, **more)

    def position(self) -> Lsn:
        """Return the end of the log."""
        [(text,)] = self.writer.execute("SELECT pg_current_wal_insert_lsn()::text").fetchall()
        return parse_lsn(text)

    def close(self) -> None:
        """Drop the generations and close the connections."""
        for generation in self.generations.existing(self.name):
            self.generations.drop(generation)
        self.client.close()
        self.writer.close()
