"""A user's own settings and mappings, whatever way they are written."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.sinks.opensearch import IndexOptions
from headrace.sinks.opensearch.settings import changed_source, fixed_settings, mappings_of, merge, settings_of

NESTED = {"analysis": {"analyzer": {"a": {"type": "keyword"}}}, "max_result_window": 5}


@pytest.mark.parametrize(
    "written",
    [
        NESTED,
        {"index": NESTED},
        {"settings": NESTED},
        {"settings": {"index": NESTED}},
        {"index.max_result_window": 5, "analysis.analyzer.a.type": "keyword"},
        {"settings": {"index.max_result_window": 5, "index": {"analysis": NESTED["analysis"]}}},
    ],
)
def test_every_way_to_write_settings_means_the_same(written: dict[str, Any]) -> None:
    assert settings_of(written) == NESTED


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"settings": 7}, "no table"),
        ({"index.routing_partition_size": 2}, "routing_partition_size"),
        ({"index": {"uuid": "x"}}, "uuid"),
        ({"gc_deletes": "60s"}, "1h at least"),
        ({"index": {"translog": {"durability": "ASYNC"}}}, "must be request"),
        ({"index": {"gc_deletes": -1}}, "1h at least"),
        ({"knn": True, "knn.derived_source.enabled": True}, "knn.derived_source.enabled must be false"),
        ({"index.derived_source.enabled": True}, "derived_source.enabled must be false"),
        ({"settings": {"index": {"derived_source": {"enabled": "TRUE"}}}}, "derived_source.enabled"),
        ({"index": {"mode": "logsdb"}}, "mode must be standard"),
        ({"mode": "time_series"}, "mode must be standard"),
        ({"index": {"mapping": {"source": {"mode": "synthetic"}}}}, "mapping.source.mode must be stored"),
        ({"index.mapping.source.mode": "disabled"}, "mapping.source.mode must be stored"),
        ({"mapping.exclude_source_vectors": True}, "mapping.exclude_source_vectors must be false"),
    ],
)
def test_settings_that_cannot_be_are_named(written: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        settings_of(written)


def test_settings_that_show_documents_as_they_were_written_need_not_be_said() -> None:
    said = {"mode": "standard", "mapping": {"source.mode": "stored", "total_fields.limit": 5}}
    assert settings_of({**said, "derived_source.enabled": False}) == {
        "mapping": {"total_fields": {"limit": 5}}
    }


@pytest.mark.parametrize(
    ("settings", "mappings", "said"),
    [
        ({"number_of_shards": "1", "mode": "standard"}, {"properties": {}}, None),
        ({"derived_source.enabled": "false"}, {"_source": {"enabled": True, "excludes": []}}, None),
        ({"mapping.source.mode": "STORED"}, {"_source": {"mode": "stored"}}, None),
        ({"derived_source.enabled": "true"}, {}, "derived_source.enabled must be false"),
        ({"mode": "logsdb"}, {}, "mode must be standard"),
        ({}, {"_source": {"enabled": False}}, "_source has enabled"),
        ({}, {"_source": {"mode": "synthetic"}}, "_source has mode"),
        ({}, {"_source": {"excludes": ["b"], "includes": []}}, "_source has excludes"),
    ],
)
def test_an_index_that_shows_other_documents_is_recognised(
    settings: dict[str, Any], mappings: dict[str, Any], said: str | None
) -> None:
    assert changed_source(settings, mappings) == said


@pytest.mark.parametrize("value", ["1h", "3600s", "3600000ms", "1d", " 90M "])
def test_deletes_may_be_remembered_longer(value: str) -> None:
    assert settings_of({"index.gc_deletes": value}) == {"gc_deletes": value}


def test_mappings_may_stand_alone_or_in_a_body() -> None:
    inner = {"properties": {"a": {"type": "keyword"}}}
    assert mappings_of(inner) == mappings_of({"mappings": inner}) == inner
    refused: tuple[dict[str, Any], ...] = (
        {"_source": {"enabled": False}},
        {"_routing": {"required": True}},
        {"mappings": []},
    )
    for wrong in refused:
        with pytest.raises(ValueError, match=r"cannot be set|no table"):
            mappings_of(wrong)


@pytest.mark.parametrize(
    "written",
    [
        {"index": {"knn": True, "knn.algo_param.ef_search": 100}},
        {"index.knn.algo_param.ef_search": 100, "index.knn": True, "knn.derived_source.enabled": False},
        {"settings": {"knn.algo_param": {"ef_search": 100}, "index.knn": True}},
    ],
)
def test_a_setting_whose_name_begins_another_ones_stays_beside_it(written: dict[str, Any]) -> None:
    """OpenSearch's page on k-NN has them in this way."""
    assert settings_of(written) == {"knn": True, "knn.algo_param.ef_search": 100}


def test_theirs_lies_over_ours() -> None:
    ours = {"a": {"type": "text", "fields": {"x": 1}}, "b": 1, "templates": ["ours"]}
    theirs = {"a": {"fields": {"y": 2}}, "c": 3, "templates": ["theirs"]}
    assert merge(ours, theirs) == {
        "a": {"type": "text", "fields": {"x": 1, "y": 2}},
        "b": 1,
        "c": 3,
        "templates": ["theirs", "ours"],
    }
    assert merge(ours, {"b": None})["b"] is None


@pytest.mark.parametrize(
    ("settings", "in_place"),
    [
        ({"refresh_interval": "3s"}, True),
        ({"max_result_window": 20_000}, True),
        ({"search": {"slowlog": {"threshold": {"query": {"warn": "1s"}}}}}, True),
        ({"mapping": {"total_fields": {"limit": 5_000}}}, True),
        ({"analysis": {"analyzer": {"a": {"type": "keyword"}}}}, False),
        ({"number_of_shards": 3}, False),
        ({"default_pipeline": "p"}, False),
        ({"final_pipeline": "p"}, False),
        ({"sort": {"field": "id"}}, False),
        ({"something": {"of": {"a": {"later": "version"}}}}, False),
    ],
)
def test_what_changes_in_place_determines_nothing(settings: dict[str, Any], in_place: bool) -> None:
    assert (fixed_settings(IndexOptions(settings=settings)) == {}) is in_place


def test_mappings_determine_documents() -> None:
    assert fixed_settings(IndexOptions(mappings={"dynamic": True})) == {"mappings": {"dynamic": True}}
