"""What a server says of itself decides what it is given."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.sinks.opensearch.client import Product, join_names
from headrace.sinks.opensearch.settings import changed_source

BODY: dict[str, Any] = {
    "settings": {"index": {}},
    "mappings": {
        "properties": {"a": {"properties": {"b": {"type": "flat_object"}}}, "c": {"type": "keyword"}}
    },
}


def about(number: str, **more: str) -> dict[str, object]:
    return {"version": {"number": number, **more}}


def field(product: Product) -> object:
    return product.adapt(BODY)["mappings"]["properties"]["a"]["properties"]["b"]


def test_opensearch_gets_what_the_schema_asks_for() -> None:
    found = Product.of(about("3.8.0", distribution="opensearch"))
    assert (found.name, found.is_too_old) == ("opensearch", False)
    assert found.adapt(BODY)["mappings"] == BODY["mappings"]


@pytest.mark.parametrize(
    ("said", "settings"),
    [
        (about("2.19.0", distribution="opensearch"), {}),
        (about("3.1.0", distribution="opensearch"), {}),
        (about("3.8.0", distribution="opensearch"), {"derived_source.enabled": False}),
        (about("7.10.2"), {}),
        (about("8.16.6"), {}),
        (about("8.19.4"), {"mode": "standard", "mapping.source.mode": "stored"}),
        (
            about("9.2.0"),
            {"mode": "standard", "mapping.source.mode": "stored", "mapping.exclude_source_vectors": False},
        ),
    ],
)
def test_a_template_cannot_have_documents_shown_otherwise_than_they_were_written(
    said: dict[str, object], settings: dict[str, object]
) -> None:
    body = {**BODY, "settings": {"index": {"number_of_shards": 2}}}
    assert Product.of(said).adapt(body)["settings"] == {"index": {"number_of_shards": 2, **settings}}


def test_elasticsearch_gets_its_own_type_where_its_build_has_it() -> None:
    assert field(Product.of(about("8.15.0", build_flavor="default"))) == {"type": "flattened"}
    assert field(Product.of(about("7.10.2", build_flavor="oss"))) == {"type": "object", "enabled": False}
    assert BODY["mappings"]["properties"]["a"]["properties"]["b"] == {"type": "flat_object"}


@pytest.mark.parametrize(
    ("said", "too_old"),
    [
        (about("1.3.0", distribution="opensearch"), True),
        (about("2.0.0", distribution="opensearch"), False),
        (about("7.9.3"), True),
        (about("7.10.0"), False),
        (about("10.0.0", distribution="opensearch"), False),
        (about("odd", distribution="opensearch"), True),
        (about("3.0.0", distribution="somebody"), True),
    ],
)
def test_what_lacks_the_means_is_known(said: dict[str, object], too_old: bool) -> None:
    assert Product.of(said).is_too_old is too_old


@pytest.mark.parametrize("said", [None, [], {}, {"version": "3"}, {"version": {"number": 3}}])
def test_what_is_no_search_server_is_refused(said: object) -> None:
    with pytest.raises(ValueError, match="no version"):
        Product.of(said)


@pytest.mark.parametrize("length", [1, 60, 255])
def test_the_names_in_a_path_are_no_more_than_a_request_may_have(length: int) -> None:
    names = [f"{at:03}{'n' * length}"[:length] if length > 3 else str(at) for at in range(50)]
    chunks = list(join_names(names))
    assert ",".join(chunks).split(",") == names
    assert all(len(chunk) < 3_500 and chunk.count(",") < 20 for chunk in chunks)


_VECTORS = "knn.derived_source.enabled"


@pytest.mark.parametrize(
    ("said", "knn", "is_set"),
    [
        (about("2.18.0", distribution="opensearch"), True, False),
        (about("2.19.0", distribution="opensearch"), True, True),
        (about("3.1.0", distribution="opensearch"), "true", True),
        (about("3.1.0", distribution="opensearch"), False, False),
        (about("9.2.0"), True, False),
    ],
)
def test_vectors_stay_in_the_documents_of_an_index_that_searches_them(
    said: dict[str, object], knn: object, is_set: bool
) -> None:
    """Clusters without the plugin k-NN refuse the setting, so it comes with `knn` alone."""
    body = {**BODY, "settings": {"index": {"knn": knn}}}
    assert (Product.of(said).adapt(body)["settings"]["index"].get(_VECTORS) is False) is is_set


@pytest.mark.parametrize(
    ("said", "settings", "shows_all"),
    [
        (about("2.19.0", distribution="opensearch"), {"knn": "true"}, True),
        (about("3.0.0", distribution="opensearch"), {"knn": "true"}, False),
        (about("3.0.0", distribution="opensearch"), {"knn": "true", _VECTORS: "false"}, True),
        (about("3.0.0", distribution="opensearch"), {"knn": "false"}, True),
        (about("3.0.0", distribution="opensearch"), {}, True),
    ],
)
def test_an_index_template_that_brings_vectors_is_recognised_by_the_default_of_the_version(
    said: dict[str, object], settings: dict[str, str], shows_all: bool
) -> None:
    changing = changed_source(Product.of(said).with_defaults(settings), {})
    assert changing == (None if shows_all else f"{_VECTORS} must be false")
