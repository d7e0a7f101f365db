"""The bytes of a document come back as they were sent, before and after they reach the index's files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.errors import HeadraceError, Kind
from headrace.model.changes import DocumentOperation
from headrace.sinks.opensearch import Client, Endpoint, OpenSearchWriter, WriterOptions
from headrace.sinks.opensearch.documents import StoredDocument, index_sizes, read_documents

_INDEX = "stored"
_BODIES = {
    "plain": '{"a":1}',
    "odd id ü:%/\n": '{"a":"é\\u00e9\\ud83d\\"\\\\","b":"😀"}',
    "spaces": '{ "a" :\t[ 1 , 2.50 , 1e400 ] , "" : null }',
    "digits": f'{{"a":{"9" * 900},"b":0.{"1" * 900}}}',
    "nested": '{"docs":[{"_id":"x","_source":{"found":true}}],"_source":{"_id":7},"found":false}',
    "empty": "{}",
}


@pytest.fixture
def client(opensearch: EmbeddedOpenSearch) -> Iterator[Client]:
    made = Client(Endpoint((opensearch.url,)))
    made.call("PUT", f"/{_INDEX}", {"mappings": {"enabled": False}})
    yield made
    made.call("DELETE", f"/{_INDEX}")
    made.close()


def test_every_byte_comes_back(client: Client) -> None:
    writer = OpenSearchWriter(client, {_INDEX: _INDEX}, WriterOptions(require_alias=False))
    sent = {id_: body.encode() for id_, body in _BODIES.items()}
    result = writer.write([DocumentOperation(_INDEX, id_, 7, body) for id_, body in sent.items()])
    assert result.rejected == ()
    expected = {id_: StoredDocument(7, body) for id_, body in sent.items()}
    asked = [*sent, "not there"]
    assert read_documents(client, _INDEX, asked) == expected  # from the transaction log
    client.call("POST", f"/{_INDEX}/_flush")
    client.call("POST", f"/{_INDEX}/_forcemerge?max_num_segments=1")
    assert read_documents(client, _INDEX, asked) == expected  # from the index's files
    assert read_documents(client, _INDEX, []) == {}
    writer.close()


def test_an_index_that_is_gone_has_no_size(client: Client) -> None:
    """Also where it was the only one: the answer to that search has no aggregations."""
    assert index_sizes(client, ["gone"]) == {}
    assert index_sizes(client, ["gone", _INDEX]).keys() == {_INDEX}


def test_an_index_that_is_not_there_is_an_error(client: Client) -> None:
    with pytest.raises(HeadraceError) as caught:
        read_documents(client, "nowhere", ["1"])
    assert caught.value.kind in (Kind.SINK_REJECTED, Kind.SINK_BUSY)
