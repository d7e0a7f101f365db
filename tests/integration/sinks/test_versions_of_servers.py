"""The sink against the other servers that it is for: what every sink does, and a deployment's documents.

`make test` runs it on Elasticsearch 9.2, `make test-all` on all.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.embedded.jars import Release
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.errors import HeadraceError
from headrace.model.changes import DocumentOperation
from headrace.model.lsn import parse_lsn
from headrace.model.names import CtidRange
from headrace.pipeline.project import open_project
from headrace.pipeline.worker.worker import BackfillRange, Worker
from headrace.postgres.connection import connect, execute
from headrace.sinks.opensearch import Client, Endpoint, Generations, IndexOptions, mapping
from headrace.sinks.opensearch.documents import documents, read_documents, refresh
from headrace.sinks.opensearch.settings import (
    adjust,
    index_warnings,
    required_settings,
    restore_settings,
    try_creation,
)
from headrace.sinks.opensearch.shard_history import identities, is_another
from headrace.state import (
    Counters,
    DeferredKeys,
    PipelineState,
    Quarantine,
    Quarantined,
    StateKey,
    StateStore,
)
from headrace.state.lease import Lease
from headrace.testing.conformance import DocumentSinkConformance
from integration.sinks.opensearch_sink import OpenSearchUnderTest
from support.elasticsearch import ELASTICSEARCH_8, ELASTICSEARCH_9, ElasticsearchNode, elasticsearch
from support.releases import ELASTICSEARCH_7, OPENSEARCH_2

Node = EmbeddedOpenSearch | ElasticsearchNode
SERVERS = [
    pytest.param(ELASTICSEARCH_9, id="elasticsearch-9.2"),
    pytest.param(ELASTICSEARCH_8, id="elasticsearch-8.19", marks=pytest.mark.long),
    pytest.param(ELASTICSEARCH_7, id="elasticsearch-7.10", marks=pytest.mark.long),
    pytest.param(OPENSEARCH_2, id="opensearch-2.19", marks=pytest.mark.long),
]


@pytest.fixture(scope="module", params=SERVERS)
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    release: Release | str = request.param
    server = (
        elasticsearch(release)
        if isinstance(release, str)
        else EmbeddedOpenSearch(heap="512m", short_lived=True, release=release)
    )
    with server as one:
        yield one


@pytest.fixture
def client(node: Node) -> Iterator[Client]:
    with contextlib.closing(Client(Endpoint((node.url,)))) as one:
        yield one


class TestSink(DocumentSinkConformance):
    @pytest.fixture
    def sink(self, node: Node) -> Iterator[OpenSearchUnderTest]:
        one = OpenSearchUnderTest(node.url)
        yield one
        one.close()


def test_it_says_who_it_is(client: Client) -> None:
    version = client.wait_until_ready(20)
    found = client.product().name, version.split(".")[0]
    assert found in {("opensearch", "2"), *(("elasticsearch", number) for number in "789")}


def test_an_id_or_a_value_that_cannot_be_stays_alone(node: Node) -> None:
    sink = OpenSearchUnderTest(node.url)
    bodies = {"a": b'{"n":1}', "x" * 513: b'{"n":1}', "b": b'{"n":"x"}', "c": b'{"n":', "d": b'{"n":2}'}
    result = sink.writer.write(DocumentOperation("users", one, 1, body) for one, body in bodies.items())
    assert {one.id for one in result.rejected} == {"x" * 513, "b", "c"}
    assert set(sink.documents()) == {"a", "d"}
    found = read_documents(sink.client, sink.generation.index, ["a", "none"])
    assert (found["a"].version, found["a"].source) == (1, b'{"n":1}')
    sink.close()


def test_a_generation_that_is_gone_is_not_made_by_a_bulk(node: Node) -> None:
    sink = OpenSearchUnderTest(node.url)
    sink.client.call("DELETE", f"/{sink.generation.index}")
    for body in (b'{"n":1}', None):
        with pytest.raises(HeadraceError, match="does not exist"):
            sink.writer.write([DocumentOperation("users", "1", 1, body)])
    assert sink.client.read(f"/{sink.generation.target}*").json() == {}
    sink.close()


def test_what_a_pipeline_remembers_is_there_again(client: Client) -> None:
    prefix = f"v{uuid.uuid4().hex[:8]}_"
    meta = StateStore(client, StateKey("s", prefix))
    state = PipelineState("1", 1, 2, "s", "p", "following", 16, 16)
    meta.save(state)
    assert meta.advance(32, Counters(changes=1)).applied == 32
    assert StateStore(client, StateKey("s", prefix)).load() == meta.load()
    deferred = DeferredKeys(client, StateKey("s", prefix))
    deferred.add("users_1", [[("1",)]], 5)
    assert (deferred.count(), [one.generation for one in deferred.oldest(5)]) == (1, ["users_1"])
    quarantine = Quarantine(client, StateKey("s", prefix))
    quarantine.put([Quarantined.now("users", "1", "why", 5, "users")])
    assert quarantine.ids() == {"users": {"1"}}
    assert quarantine.counts() == {"users": 1}
    meta.delete()
    assert (meta.load(), deferred.count(), quarantine.entries()) == (None, 0, [])
    for name in ("meta", "deferred", "quarantine"):
        client.call("DELETE", f"/{prefix}headrace_{name}", allow=(404,))


SCHEMA = """\
version: 1
table: thing
primary_key: id
fields:
  - long: id
  - text: name
  - enum: size
    variants: [small, large]
  - timestamp: made
  - json: more
  - decimal: price
  - custom: labels
    postgres: [jsonb]
    opensearch: flat_object
  - map: notes
    column: labels
    values: text
"""
TABLE = (
    """CREATE TABLE thing (id bigint PRIMARY KEY, name text, size text, made timestamptz, more jsonb,
                           price numeric, labels jsonb)""",
    """INSERT INTO thing SELECT n, 'Crème ' || n, CASE n % 2 WHEN 0 THEN 'small' ELSE 'large' END, now(),
              jsonb_build_object('a', n), n + 0.5, jsonb_build_object('k', 'v')
         FROM generate_series(1, 500) AS n""",
)


def test_a_deployments_documents_are_backfilled_and_served(
    node: Node, client: Client, database: str, tmp_path: Path
) -> None:
    from headrace.pipeline.inspection import inspect  # noqa: PLC0415
    from headrace.pipeline.worker.plan import DocumentsPlan, Endpoints, Work  # noqa: PLC0415
    from headrace.resolution import plan_resolution  # noqa: PLC0415

    with connect(database) as connection:
        for statement in TABLE:
            execute(connection, statement)
    (tmp_path / "thing.schema.yml").write_text(SCHEMA)
    config = tmp_path / "headrace.toml"
    prefix = f"v{uuid.uuid4().hex[:8]}_"
    config.write_text(
        f'prefix = "{prefix}"\n[source]\ntype = "postgres"\nconnection_url = {json.dumps(database)}\n'
        f'[sinks.main]\ntype = "opensearch"\nurl = "{node.url}"\nrefresh_interval = "1s"\n'
        '[[index]]\nname = "thing"\nschema = "thing.schema.yml"\n'
    )
    project = open_project(config, {})
    with connect(database) as connection:
        inspection = inspect(project, project.resolve(), connection, reading=False)
    spec, options = inspection.project.specs["thing"], project.primary.index_options("thing")
    body = mapping(spec, options)
    try_creation(client, f"{prefix}trial", body)
    generations = Generations(client, prefix)
    made = generations.create("thing", "ab", body)
    plan = DocumentsPlan(
        specs={"thing": spec},
        catalog=inspection.catalog,
        resolution=plan_resolution([spec], inspection.catalog),
        targets={"thing": made.target},
        writer=project.primary.writer_options(),
        key=StateKey("none", prefix),
        skip_rejected=frozenset(),
        large_change=50_000,
    )
    with contextlib.closing(Worker(Work(plan, Endpoints(database, project.resolve().sink)))) as worker:
        assert (
            worker.backfill(BackfillRange("thing", CtidRange(0, None), parse_lsn("0/10"), None)).upserted
            == 500
        )
    generations.finish(made, options)
    generations.publish(made)
    adjust(client, made.index, options)
    refresh(client, generations.alias("thing"))
    found = dict(documents(client, generations.alias("thing")))
    assert len(found) == 500
    assert (found["7"]["name"], found["7"]["more"], found["7"]["labels"]) == ("Crème 7", {"a": 7}, {"k": "v"})
    asked = {"query": {"match": {"name": "creme"}}, "size": 1, "sort": [{"size.sort": "asc"}]}
    hit = client.read(f"/{generations.alias('thing')}/_search", asked).json()["hits"]
    assert (hit["total"]["value"], hit["hits"][0]["_source"]["size"]) == (500, "small")
    assert generations.published("thing") == made
    generations.drop(made)


def test_what_is_restored_in_place_has_another_history(node: Node, client: Client) -> None:
    prefix = f"h{uuid.uuid4().hex[:8]}_"
    body: dict[str, Any] = {"settings": {"index": {"number_of_shards": 2}}, "mappings": {}}
    made = Generations(client, prefix).create("thing", "ab", body)
    before = identities(client, [made.index])[made.index]
    assert before.uuid == made.uuid
    assert len(before.history) == 2
    assert all(before.history)
    where = {"type": "fs", "settings": {"location": str(node.snapshots / prefix)}}
    what = {"indices": made.index, "include_global_state": False}
    client.call("PUT", f"/_snapshot/{prefix}", where)
    client.call("PUT", f"/_snapshot/{prefix}/one?wait_for_completion=true", what)
    client.call("POST", f"/{made.index}/_close")
    assert identities(client, [made.index]) == {}
    client.call("POST", f"/{made.index}/_open")
    client.read(f"/_cluster/health/{made.index}?wait_for_status=green&timeout=60s")
    assert identities(client, [made.index])[made.index] == before
    client.call("POST", f"/{made.index}/_close")
    client.call("POST", f"/_snapshot/{prefix}/one/_restore?wait_for_completion=true", what)
    client.read(f"/_cluster/health/{made.index}?wait_for_status=green&timeout=60s")
    after = identities(client, [made.index, "nothing"])[made.index]
    assert after.uuid == before.uuid
    assert is_another(before.history, after.history)


def test_settings_are_kept_and_leases_renewed(client: Client) -> None:
    prefix = f"k{uuid.uuid4().hex[:8]}_"
    made = Generations(client, prefix).create("thing", "ab", {"settings": {"index": {}}, "mappings": {}})
    wanted = {made.index: required_settings(IndexOptions(), backfilled=True, other=False)}
    assert restore_settings(client, wanted) == [f"{made.index}: gc_deletes was 24h"]
    client.call("PUT", f"/{made.index}/_settings", {"index": {"translog.durability": "async"}})
    assert restore_settings(client, wanted) == [f"{made.index}: translog.durability was async"]
    assert restore_settings(client, wanted) == []
    assert index_warnings(client, made.index, "thing") == []
    with Lease(client, StateKey("s1", prefix), ["thing", "other"], beat=60.0) as lease:
        for _ in range(3):
            lease.renew()
        assert lease.lost() is None
