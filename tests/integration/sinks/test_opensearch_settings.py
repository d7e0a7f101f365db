"""How the options of a sink and the files of an index reach a real index, and change there."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.model.changes import DocumentOperation
from headrace.pipeline.project import open_project
from headrace.schema.normal import spec_hash
from headrace.sinks.opensearch import (
    Client,
    Endpoint,
    Generation,
    Generations,
    IndexOptions,
    OpenSearchWriter,
    mapping,
)
from headrace.sinks.opensearch.documents import count, refresh
from headrace.sinks.opensearch.settings import adjust, check_pipeline, is_accepted, try_creation
from support.http_proxy import Answer, HttpProxy

SCHEMA = """\
version: 1
table: users
primary_key: id
fields:
  - long: id
  - text: name
  - keyword: code
"""


@pytest.fixture
def generations(client: Client) -> Iterator[Generations]:
    one = Generations(client, f"s{uuid.uuid4().hex[:8]}_")
    yield one
    for generation in one.existing("users"):
        one.drop(generation)


class Made:
    """A generation as a deployment file describes it."""

    def __init__(
        self, folder: Path, generations: Generations, url: str, sink: str = "", **files: object
    ) -> None:
        (folder / "users.schema.yml").write_text(SCHEMA)
        lines = [f'{name}_file = "{name}.json"' for name in files]
        for name, content in files.items():
            (folder / f"{name}.json").write_text(json.dumps(content))
        config = folder / "headrace.toml"
        config.write_text(
            '[source]\ntype = "postgres"\nconnection_url = "postgresql://u@h/d"\n'
            f'[sinks.main]\ntype = "opensearch"\nurl = "{url}"\n{sink}\n'
            '[[index]]\nname = "users"\nschema = "users.schema.yml"\n' + "\n".join(lines)
        )
        self.project = open_project(config, {})
        self.options: IndexOptions = self.project.primary.index_options("users")
        spec = self.project.specs["users"]
        self.hash = spec_hash(spec, self.project.primary.determinants(spec, []))
        body = mapping(spec, self.options)
        self.generation: Generation = generations.create("users", self.hash, body)
        generations.finish(self.generation, self.options)


def about(client: Client, index: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Flat settings, and properties."""
    found = client.read(f"/{index}?flat_settings=true").json()[index]
    return found["settings"], found["mappings"]["properties"]


def test_the_options_of_the_sink_are_those_of_the_index(
    tmp_path: Path, client: Client, generations: Generations
) -> None:
    sink = 'number_of_shards = 3\nnumber_of_replicas = 0\nrefresh_interval = "7s"\nauto_subfields = false'
    made = Made(tmp_path, generations, client.endpoint.urls[0], sink)
    settings, properties = about(client, made.generation.index)
    assert settings["index.number_of_shards"] == "3"
    assert settings["index.number_of_replicas"] == "0"
    assert settings["index.refresh_interval"] == "7s"
    assert properties["name"] == {"type": "text"}


def test_text_analysis_finds_what_a_reader_types(
    tmp_path: Path, client: Client, generations: Generations
) -> None:
    made = Made(tmp_path, generations, client.endpoint.urls[0])
    writer = OpenSearchWriter(
        client, {"users": made.generation.target}, made.project.primary.writer_options()
    )
    body = '{"id":1,"name":"Crème Brûlée","code":"C-01234"}'.encode()
    writer.write([DocumentOperation("users", "1", 1, body)])
    refresh(client, made.generation.index)
    for field, text in (("name", "creme"), ("code.text", "01234"), ("code.keyword_lowercase", "c-01234")):
        assert count(client, made.generation.index, {"match": {field: text}}) == 1, field


def test_an_ingest_pipeline_is_named_with_every_bulk_and_must_be_there(
    tmp_path: Path, client: Client, generations: Generations
) -> None:
    """The embedded node has no ingest role: what its answers would be is told by a proxy."""
    url = client.endpoint.urls[0]
    with HttpProxy(url, spoil=lambda one: Answer(404) if "_ingest" in one.target else None) as front:
        behind = Client(Endpoint((front.url,)))
        with pytest.raises(HeadraceError, match="no ingest pipeline 'p 1'") as caught:
            check_pipeline(behind, "p 1")
        assert caught.value.kind is Kind.SINK_REJECTED
        assert front.requests[-1].target == "/_ingest/pipeline/p%201"
        front.spoil = lambda _: Answer(200, b'{"errors":false}')
        check_pipeline(behind, "p 1")
        made = Made(tmp_path, generations, url, 'pipeline = "p 1"')
        writer = OpenSearchWriter(
            behind, {"users": made.generation.target}, made.project.primary.writer_options()
        )
        writer.write([DocumentOperation("users", "1", 1, b"{}")])
        assert "pipeline=p%201" in front.requests[-1].target
    assert Made(tmp_path, generations, url).hash != made.hash


def test_files_lie_over_what_the_schema_gives(
    tmp_path: Path, client: Client, generations: Generations
) -> None:
    analyzer = {"type": "custom", "tokenizer": "standard", "filter": ["lowercase", "english_stop"]}
    settings = {
        "index": {
            "number_of_shards": 2,
            "max_result_window": 20_000,
            "analysis": {
                "analyzer": {"prose": analyzer},
                "filter": {"english_stop": {"type": "stop", "stopwords": "_english_"}},
            },
        }
    }
    mappings = {"properties": {"name": {"analyzer": "prose"}, "added": {"type": "keyword"}}}
    made = Made(tmp_path, generations, client.endpoint.urls[0], settings=settings, mappings=mappings)
    found, properties = about(client, made.generation.index)
    assert (found["index.number_of_shards"], found["index.max_result_window"]) == ("2", "20000")
    assert properties["name"]["analyzer"] == "prose"
    assert "keyword" in properties["name"]["fields"], "ours stays below"
    assert properties["added"] == {"type": "keyword"}
    assert properties["code"]["type"] == "keyword"


def test_what_can_change_in_place_does_and_needs_no_other_generation(
    tmp_path: Path, client: Client, generations: Generations
) -> None:
    url = client.endpoint.urls[0]
    made = Made(tmp_path, generations, url, settings={"max_result_window": 20_000})
    later = Made(
        tmp_path, generations, url, 'refresh_interval = "3s"', settings={"max_result_window": 30_000}
    )
    assert later.hash == made.hash
    index = made.generation.index
    assert adjust(client, index, later.options) == {
        "index.refresh_interval": "3s",
        "index.max_result_window": 30_000,
    }
    assert adjust(client, index, later.options) == {}
    found, _ = about(client, index)
    assert (found["index.refresh_interval"], found["index.max_result_window"]) == ("3s", "30000")


def test_what_cannot_gives_another_generation(
    tmp_path: Path, client: Client, generations: Generations
) -> None:
    url = client.endpoint.urls[0]
    hashes = {
        Made(tmp_path, generations, url).hash,
        Made(tmp_path, generations, url, settings={"number_of_shards": 2}).hash,
        Made(tmp_path, generations, url, mappings={"properties": {"name": {"norms": False}}}).hash,
        Made(tmp_path, generations, url, mappings={"properties": {"name": {"norms": True}}}).hash,
    }
    assert len(hashes) == 4


def test_everything_that_we_call_dynamic_is_taken_by_a_living_index(
    tmp_path: Path, client: Client, generations: Generations
) -> None:
    settings = {
        "auto_expand_replicas": "0-1",
        "gc_deletes": "1h",
        "hidden": True,
        "priority": 5,
        "query.default_field": ["name"],
        "analyze.max_token_count": 9_000,
        "highlight.max_analyzed_offset": 900_000,
        "blocks.write": False,
        "routing.allocation.total_shards_per_node": 5,
        "routing.rebalance.enable": "all",
        "search.slowlog.threshold.query.warn": "5s",
        "search.idle.after": "20s",
        "indexing.slowlog.threshold.index.warn": "5s",
        "requests.cache.enable": False,
        "merge.policy.max_merged_segment": "2gb",
        "merge.scheduler.max_thread_count": 1,
        "unassigned.node_left.delayed_timeout": "2m",
        "write.wait_for_active_shards": "1",
        "translog.durability": "request",
        "translog.sync_interval": "6s",
        "translog.flush_threshold_size": "256mb",
        **{f"mapping.{one}.limit": 999 for one in ("depth", "nested_fields", "field_name_length")},
        **{f"mapping.{one}.limit": 9_999 for one in ("total_fields", "nested_objects")},
        **{
            f"max_{one}": 99
            for one in (
                "inner_result_window rescore_window docvalue_fields_search script_fields ngram_diff "
                "shingle_diff refresh_listeners terms_count regex_length slices_per_scroll"
            ).split()
        },
    }
    url = client.endpoint.urls[0]
    made = Made(tmp_path, generations, url)
    later = Made(tmp_path, generations, url, settings=settings)
    assert later.hash == made.hash
    changed = adjust(client, made.generation.index, later.options)
    assert {name.removeprefix("index.") for name in changed} >= set(settings) - {
        "blocks.write",
        "translog.durability",
    }


@pytest.mark.parametrize(
    "wrong",
    [
        {"settings": {"number_of_shards": -1}},
        {"mappings": {"properties": {"name": {"analyzer": "none"}}}},
        {"settings": {"no_such_setting": 1}},
    ],
)
def test_a_trial_says_what_the_cluster_refuses_and_leaves_nothing(
    client: Client, wrong: dict[str, Any]
) -> None:
    name = f"t{uuid.uuid4().hex[:8]}"
    body = {"settings": {"index": wrong.get("settings", {})}, "mappings": wrong.get("mappings", {})}
    right: dict[str, Any] = {"settings": {"index": {}}, "mappings": {}}
    assert (is_accepted(client, name, right), is_accepted(client, name, body)) == (True, False)
    with pytest.raises(HeadraceError) as caught:
        try_creation(client, name, body)
    assert caught.value.kind is Kind.SINK_REJECTED
    try_creation(client, name, right)
    assert client.read(f"/{name}", allow=(404,)).status == 404
