"""Send requests to an OpenSearch cluster and return the answers.

urllib3 keeps the connections; this module adds the choice of a node, credentials, compression and the meaning
of failures. It knows nothing about documents. Bulks, versions and aliases are alike in all supported servers
(measured on OpenSearch 3.8 and 2.19 and Elasticsearch 7.10); `Product` knows what differs.
"""

from __future__ import annotations

import gzip
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import quote, urlencode

import urllib3
from tenacity import (
    Retrying,
    retry_if_exception,
    stop_after_attempt,
    stop_after_delay,
    wait_random_exponential,
)
from tenacity.stop import stop_base
from urllib3.exceptions import HTTPError
from urllib3.util import parse_url

from headrace.errors import HeadraceError, Kind, Refusals, Retry
from headrace.model.chunks import chunked
from headrace.sinks.opensearch import failures
from headrace.sinks.opensearch.endpoint import Endpoint
from headrace.sinks.opensearch.pinned_connection import pinned_pools
from headrace.sinks.opensearch.signing import Signer

_OLDEST_VERSIONS = {"opensearch": (2, 0), "elasticsearch": (7, 10)}
"""`require_alias` keeps a bulk from creating an index of a deleted name; older versions lack it."""

_SEGMENT_REPLICATION = (2, 7)
"""First version of OpenSearch with segment replication, and with searches sent to primary shards."""

WHOLE_SOURCE: tuple[tuple[str, tuple[int, int], str, object], ...] = (
    ("opensearch", (3, 2), "derived_source.enabled", False),
    ("opensearch", (2, 19), "knn.derived_source.enabled", False),
    ("elasticsearch", (8, 17), "mode", "standard"),
    ("elasticsearch", (8, 17), "mapping.source.mode", "stored"),
    ("elasticsearch", (9, 2), "mapping.exclude_source_vectors", False),
)
"""Settings that let documents be shown as they were written, and since when a product knows them."""

_KNN, _KNN_DERIVED_SOURCE = "knn", "knn.derived_source.enabled"
"""A setting that only clusters with the plugin k-NN know, and the one that goes with it there."""

_DERIVED_BY_DEFAULT = (3, 0)
"""Since when an index with vectors leaves them out of `_source`, unless its settings say otherwise."""

_WITHOUT_LICENCE = ("oss", "unknown")
"""Builds of Elasticsearch that lack its own field types."""

_SERVERLESS = "serverless"
"""The build flavor of Elastic Cloud Serverless."""

_CONNECTIONS = 8
_COMPRESSION_LEVEL = 1
READ_ATTEMPTS = 4
"""How often a read is tried in all."""
_NAMES_AT_ONCE = 20
"""Most index names in one path."""
_PATH_BYTES = 3_000
"""Most bytes of names in one path; a request's first line is limited to 4,096 bytes."""
_TRY_ANOTHER_NODE = (429, 502, 503, 504)
"""Statuses that may concern a single node: the next request goes to the next node."""
_HEALTH = "/_cluster/health"
_SHARDS = ("active_shards", "initializing_shards", "unassigned_shards")
_FORBIDDEN = 403
_REFUSALS = (401, _FORBIDDEN)
_NOT_FOUND = 404
_TIMED_OUT = 408
_NOBODY = (301, 302, 303, 307, 308, 400, _NOT_FOUND, 410)
"""Statuses of a gateway that has lost its way to the cluster."""
_RESTART_SECONDS = 1.0
"""No node starts again so soon: its state is still recovered where it was."""
_REFUSED_SECONDS = 300.0
"""How long credentials that were accepted may be refused: a cluster that starts does not know them yet."""
_SERIES_SECONDS = 60.0
"""Refusals further apart are not of the same start of the cluster."""


@dataclass(frozen=True, slots=True)
class Product:
    """A server's product, version and build, as it reports them.

    Attributes:
        name: `opensearch` or `elasticsearch`.
        version: as the server prints it.
        build: Elasticsearch's build flavor.
    """

    name: str = "opensearch"
    version: str = "3.0.0"
    build: str = ""

    @classmethod
    def of(cls, about: object) -> Self:
        """Read the answer to `GET /`.

        Raises:
            ValueError: it is neither OpenSearch nor Elasticsearch.
        """
        version = about.get("version") if isinstance(about, Mapping) else None
        if not isinstance(version, Mapping) or not isinstance(version.get("number"), str):
            raise ValueError("no version")  # noqa: TRY004 - of an answer, not of a caller
        name = version.get("distribution", "elasticsearch")
        return cls(str(name), version["number"], str(version.get("build_flavor", "")))

    @property
    def is_too_old(self) -> bool:
        """Tell whether the version lacks features that the sink relies on."""
        oldest = _OLDEST_VERSIONS.get(self.name)
        return oldest is None or not self._is_since(oldest)

    @property
    def copies_segments(self) -> bool:
        """Tell whether indexes may have segment replication, whose replicas find documents later."""
        return self.name == "opensearch" and self._is_since(_SEGMENT_REPLICATION)

    def adapt(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Adapt the body of an index's creation to this server.

        It also overrides what index templates say of how documents are shown.
        """
        index = body["settings"]["index"]
        whole = {
            setting: value
            for name, since, setting, value in WHOLE_SOURCE
            if name == self.name and self._is_since(since)
        }
        # A cluster without the plugin refuses its settings as unknown.
        if not _is_true(index.get(_KNN)):
            whole.pop(_KNN_DERIVED_SOURCE, None)
        settings = {**body["settings"], "index": {**whole, **index}}
        if self.name != "elasticsearch":
            return {**body, "settings": settings}
        # What OpenSearch calls flat_object.
        open_keys: dict[str, object] = {"type": "flattened"}
        if self.build in _WITHOUT_LICENCE:
            open_keys = {"type": "object", "enabled": False}
        mappings = _replace(body["mappings"], {"type": "flat_object"}, open_keys)
        return {**body, "settings": settings, "mappings": mappings}

    def with_defaults(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Add to the flat settings of an index the default that leaves a part out of documents."""
        by_default = self.name == "opensearch" and self._is_since(_DERIVED_BY_DEFAULT)
        added = {_KNN_DERIVED_SOURCE: "true"} if by_default and _is_true(settings.get(_KNN)) else {}
        return {**added, **settings}

    def _is_since(self, version: tuple[int, int]) -> bool:
        match = re.match(r"(\d+)\.(\d+)", self.version)
        return match is not None and (int(match[1]), int(match[2])) >= version


def _is_true(value: object) -> bool:
    return str(value).lower() == "true"


def _replace(value: Any, old: Any, new: Any) -> Any:
    if value == old:
        return new
    if isinstance(value, Mapping):
        return {name: _replace(inner, old, new) for name, inner in value.items()}
    return value


@dataclass(frozen=True, slots=True)
class Answer:
    """A node's answer.

    Attributes:
        place: names the node in messages.
        is_known: whether the cluster has answered before, so that the URL is right.
    """

    status: int
    data: bytes
    place: str
    is_known: bool = False

    @property
    def ok(self) -> bool:
        """Tell whether the status is 2xx."""
        return self.status // 100 == 2  # noqa: PLR2004

    @property
    def is_readable(self) -> bool:
        """Tell whether the body begins as JSON of a cluster does, and not as a page of HTML."""
        return self.data.lstrip()[:1] in (b"{", b"[")

    @property
    def is_of_gateway(self) -> bool:
        """Tell whether something before the cluster answered; of an answer that is not 2xx."""
        return failures.is_of_gateway(self.data)

    @property
    def finds_nothing(self) -> bool:
        """Tell whether the cluster's metadata, and not a shard, says that something does not exist."""
        if self.status == _NOT_FOUND:
            return b'"_id":' not in self.data  # a shard names the document that it lacks
        return self.ok and self.data.strip() == b"{}"

    def json(self, name: str = "") -> Any:
        """Parse the body; return all of it, or what has this name at its top.

        Raises:
            HeadraceError: as `unreadable`, where the body is no JSON or lacks the name.
        """
        try:
            parsed = json.loads(self.data)
            return parsed[name] if name else parsed
        except (ValueError, LookupError, TypeError) as error:
            raise self.unreadable() from error

    def unreadable(self) -> HeadraceError:
        """Build the error for what no cluster answers: SINK_REJECTED, or SINK_BUSY behind its answers."""
        error = HeadraceError(
            Kind.SINK_REJECTED,
            f"what answers at {self.place} does not answer as OpenSearch does",
            "Check the URL of the sink.",
        )
        return failures.cluster_unknown(error) if self.is_known else error


class Client:
    """Sends requests to one cluster; thread-safe; connections are opened by the first request.

    A request that could not be sent goes to the next node. One that was sent and got no answer is an error,
    except that reads are repeated.

    What is unknown counts neither as absent nor as refused. A cluster that starts says that no index exists
    until it has recovered its metadata, and refuses users and keys until it has recovered those. A gateway
    that does not find the cluster says 404 of everything. All are SINK_BUSY (decision 0141).

    Args:
        endpoint: the cluster.
        read_attempts: how often a read is tried in all.
        first: index of the node to begin with; clients with different ones spread their load over the nodes.
        accepted: whether the cluster has accepted the credentials in this run.

    Raises:
        HeadraceError: CONFIG, for an unusable address or file of certificates.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        read_attempts: int = READ_ATTEMPTS,
        first: int = 0,
        accepted: bool = False,
    ) -> None:
        self.endpoint = endpoint
        self._pool = _pool(self.endpoint)
        self._signer = Signer(self.endpoint.aws_region) if self.endpoint.aws_region else None
        self._first = first % len(self.endpoint.urls)
        self._read_attempts = read_attempts
        self._product: Product | None = None
        self._accepted = accepted
        self._refusals = Refusals()
        self._recovered_at = -_RESTART_SECONDS

    @property
    def server_timeout(self) -> str:
        """Return how long the cluster may wait for a shard: less than this client waits for the reason."""
        return f"{self.endpoint.timeout * 750:.0f}ms"

    def exchange(
        self, method: str, target: str, body: bytes | None = None, content_type: str = "application/json"
    ) -> Answer:
        """Send one request once and return whatever answer comes.

        `target` is path and query, beginning with `/`, escaped (see `path`).

        Raises:
            HeadraceError: SINK_UNREACHABLE without an answer (then a request that changes something may
                or may not have been applied); AUTHENTICATION where a certificate is not trusted, or SINK_BUSY
                for some minutes where the cluster was reached before.
        """
        headers = {**self._pool.headers}
        if body is not None:
            headers["content-type"] = content_type
            if self.endpoint.gzip:
                body = gzip.compress(body, _COMPRESSION_LEVEL)
                headers["content-encoding"] = "gzip"
        return self._at_some_node(method, target, body, headers)

    def call(self, method: str, target: str, body: object = None, *, allow: Iterable[int] = ()) -> Answer:
        """Send `body` as JSON; raise for statuses other than 2xx and `allow`.

        No HEAD: without its words nobody knows whose a 404 is.

        Raises:
            HeadraceError: as `exchange` and `failure`; SINK_BUSY also where the cluster does not know yet
                what it has.
        """
        # Not ASCII alone: escapes would take six bytes for each letter of most scripts.
        data = None if body is None else json.dumps(body, ensure_ascii=False).encode()
        answer = self._exchange_known(method, target, data)
        if answer.finds_nothing and not self._was_recovered():
            # Again, since the state may have been recovered in between.
            answer = self._exchange_known(method, target, data)
        if answer.ok or answer.status in tuple(allow):
            return answer
        raise self.failure(answer)

    def _exchange_known(self, method: str, target: str, data: bytes | None) -> Answer:
        """Send one request as `exchange`; raise for a page of HTML, and a 404 that says nothing."""
        answer = self.exchange(method, target, data)
        if answer.ok and not answer.is_readable:
            raise answer.unreadable()
        if answer.status == _NOT_FOUND and failures.says_nothing(answer.data):
            raise self.failure(answer)
        return answer

    def failure(self, answer: Answer) -> HeadraceError:
        """Build the error for an answer to `exchange` that is not 2xx.

        SINK_BUSY (429, 5xx, what passes; where the cluster accepted the credentials before also 401 and 403
        for some minutes, since it may be starting, and a gateway that does not find it), AUTHENTICATION (401,
        403), SINK_REJECTED.
        """
        error = failures.from_status(answer.status, answer.data, answer.place)
        if not self._accepted:
            return error
        if error.kind is Kind.SINK_REJECTED and answer.status in _NOBODY and answer.is_of_gateway:
            return failures.cluster_unknown(error)
        if error.kind is Kind.AUTHENTICATION and self._may_be_starting(answer):
            return failures.credentials_unknown(error)
        return error

    def _unanswered(self, error: HTTPError, place: str) -> HeadraceError:
        """Build the error for a request without an answer; a certificate may be in the middle of a change."""
        failure = failures.from_exception(error, place)
        if failure.kind is Kind.AUTHENTICATION and self._accepted and self._is_refused_lately():
            return failures.certificate_unknown(failure)
        return failure

    def _may_be_starting(self, answer: Answer) -> bool:
        """Tell whether the cluster may not know its users, roles and keys yet."""
        # One refusal among accepted requests is a missing permission: a cluster that starts refuses also to
        # tell its health, for which every run asks before it starts.
        is_refused = answer.status != _FORBIDDEN or self.exchange("GET", _HEALTH).status in _REFUSALS
        return is_refused and self._is_refused_lately()

    def _is_refused_lately(self) -> bool:
        """Note a refusal; tell whether the cluster let this client in until some minutes ago."""
        return self._refusals.note(_SERIES_SECONDS) <= _REFUSED_SECONDS

    def reaches_cluster(self) -> bool:
        """Tell whether the cluster answers a small request, whatever became of another one."""
        answer = self.exchange("GET", _HEALTH)
        return answer.ok and answer.is_readable

    def _was_recovered(self) -> bool:
        """Tell whether the cluster's state was recovered just before; else check that it is now.

        A cluster without metadata is red although no shard is missing.

        Raises:
            HeadraceError: SINK_BUSY, where it is not; as `exchange` and `failure`.
        """
        if time.monotonic() - self._recovered_at < _RESTART_SECONDS:
            return True
        asked_at = time.monotonic()
        answer = self.exchange("GET", _HEALTH)
        if not answer.ok:
            raise self.failure(answer)
        health = answer.json()
        # Red with shards is a cluster that has lost one; red without any has not read its metadata.
        if health.get("status") == "red" and not _has_shards(health):
            raise failures.state_unknown(answer.place)
        # When it was asked, not when it answered: the node may have started in between.
        self._recovered_at = asked_at
        return False

    def read(self, target: str, body: object = None, *, allow: Iterable[int] = ()) -> Answer:
        """Send a request that changes nothing (GET, or POST with a body), with a few retries."""
        return self.repeat("GET" if body is None else "POST", target, body, allow=allow)

    def repeat(self, method: str, target: str, body: object = None, *, allow: Iterable[int] = ()) -> Answer:
        """Send a request that may be carried out twice, with the retries of a read."""
        attempts = _attempts(stop_after_attempt(self._read_attempts))
        return attempts(self.call, method, target, body, allow=tuple(allow))

    def wait_until_ready(self, seconds: float = 60.0) -> str:
        """Wait until a node answers and the cluster accepts writes; returns the server's version.

        A cluster that stays red for so long misses shards of some indexes: what needs those waits for them.

        Raises:
            HeadraceError: the last failure after `seconds`; at once for an error that is not retryable.
                SINK_REJECTED where it is another kind of server, or too old.
        """
        return _attempts(stop_after_delay(seconds))(self._ready_version, time.monotonic() + seconds)

    def _ready_version(self, end: float) -> str:
        # The cluster may have been upgraded while it was away.
        self._product = None
        product = self.product()
        answer = self.call("GET", f"{_HEALTH}?wait_for_status=yellow&timeout=5s", allow=(_TIMED_OUT,))
        is_red = not answer.ok and not answer.is_of_gateway and _has_shards(answer.json())
        if not answer.ok and not (is_red and time.monotonic() >= end):
            raise self.failure(answer)
        return product.version

    def product(self) -> Product:
        """Return the server's product and version; requested once.

        Raises:
            HeadraceError: SINK_REJECTED where it is another kind of server, or too old.
        """
        if self._product is None:
            self._product = _product(self.call("GET", "/"))
        return self._product

    def primaries(self) -> dict[str, str | int]:
        """Return the query parameters that send a search to primary shards.

        A replica with segment replication may lag behind a refresh.

        Raises:
            HeadraceError: as `product`.
        """
        return {"preference": "_primary"} if self.product().copies_segments else {}

    def close(self) -> None:
        """Close all connections; idempotent, and a later request opens new ones."""
        self._pool.clear()

    def _sign(self, method: str, url: str, body: bytes | None) -> dict[str, str]:
        """Return the headers that sign a request; none where requests are not signed."""
        # urllib3 normalises a URL before it sends it: the signature must cover the same text.
        return self._signer.headers(method, str(parse_url(url)), body) if self._signer else {}

    def _at_some_node(self, method: str, target: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        urls = self.endpoint.urls
        first = self._first
        for step in range(len(urls)):
            node = (first + step) % len(urls)
            url = urls[node] + target
            signed = {**headers, **self._sign(method, url, body)}
            try:
                response = self._pool.request(method, url, body=body, headers=signed)
            except HTTPError as error:
                self._recovered_at = -_RESTART_SECONDS  # it may start again, and another node answer now
                # A request that was sent may have been applied: it is never repeated here.
                if failures.not_sent(error) and step + 1 < len(urls):
                    continue
                self._first = (node + 1) % len(urls)
                raise self._unanswered(error, _place(urls[node])) from error
            # A node that works is kept: its connections are open.
            self._first = (node + 1) % len(urls) if response.status in _TRY_ANOTHER_NODE else node
            answer = Answer(response.status, response.data, _place(urls[node]), self._accepted)
            if answer.ok and answer.is_readable:
                self._accepted = True
                self._refusals.forget()
            return answer
        raise AssertionError("there is at least one node")


def path(*parts: str, query: Mapping[str, str | int] | None = None) -> str:
    """Build a request's target from unescaped parts: `path("a/b", "_doc", "1")` is `/a%2Fb/_doc/1`."""
    escaped = "/" + "/".join(quote(part, safe=",*") for part in parts)
    # A space is %20: as "+" it would be signed otherwise than the server reads it.
    return f"{escaped}?{urlencode(query, quote_via=quote)}" if query else escaped


def join_names(names: Sequence[str]) -> Iterator[str]:
    """Join index names with commas, in as many chunks as fit into requests' paths."""
    chunks = chunked(names, lambda name: len(quote(name)) + 1, lambda: _PATH_BYTES, _NAMES_AT_ONCE)
    return map(",".join, chunks)


def _pool(endpoint: Endpoint) -> urllib3.PoolManager:
    headers = {"accept": "application/json", "user-agent": "headrace"}
    if endpoint.authorization is not None:
        headers["authorization"] = endpoint.authorization
    endpoint.check_files()
    is_open = not endpoint.verify
    if is_open:
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    manager = urllib3.PoolManager(
        headers=headers,
        maxsize=_CONNECTIONS,
        timeout=urllib3.Timeout(connect=endpoint.connect_timeout, read=endpoint.timeout),
        # urllib3 would repeat a bulk that may have been applied, with the same bytes.
        retries=False,
        cert_reqs="CERT_REQUIRED" if endpoint.verify else "CERT_NONE",
        ca_certs=str(endpoint.ca_file) if endpoint.ca_file else None,
        cert_file=str(endpoint.client_cert) if endpoint.client_cert else None,
        key_file=str(endpoint.client_key) if endpoint.client_key else None,
        # Not for plain HTTP, whose connections know no such argument before urllib3 2.8.
        **({"assert_hostname": False} if is_open and endpoint.urls[0].startswith("https:") else {}),
    )
    if endpoint.ca_fingerprint is not None:
        manager.pool_classes_by_scheme = pinned_pools(endpoint.ca_fingerprint)
    return manager


def _place(url: str) -> str:
    return url.partition("://")[2]


def _attempts(stop: stop_base) -> Retrying:
    """Repeat what a pause may cure."""
    wait = wait_random_exponential(multiplier=0.1, max=2)
    return Retrying(retry=retry_if_exception(_is_transient), wait=wait, stop=stop, reraise=True)


def _is_transient(error: BaseException) -> bool:
    return isinstance(error, HeadraceError) and error.retry is Retry.BACK_OFF


def _has_shards(health: Mapping[str, Any]) -> bool:
    return any(health.get(shards) for shards in _SHARDS)


def _product(answer: Answer) -> Product:
    about = answer.json()
    try:
        product = Product.of(about)
    except ValueError as error:
        raise HeadraceError(
            Kind.SINK_REJECTED,
            f"what answers at {answer.place} is not OpenSearch",
            "Check the URL of the sink.",
        ) from error
    if product.name != "opensearch" and "OpenSearch" in str(about.get("tagline")):
        raise HeadraceError(
            Kind.SINK_REJECTED,
            f"the cluster at {answer.place} is OpenSearch in compatibility mode, and says that it is "
            f"{product.name} {product.version}: what it can do is not known",
            "Set compatibility.override_main_response_version of the cluster to false.",
        )
    if product.is_too_old:
        raise HeadraceError(
            Kind.SINK_REJECTED,
            f"the cluster at {answer.place} is {product.name} {product.version}",
            "Headrace needs OpenSearch 2 or later, or Elasticsearch 7.10 or later.",
        )
    if product.build == _SERVERLESS:
        raise HeadraceError(
            Kind.SINK_REJECTED,
            f"{answer.place} is Elastic Cloud Serverless, which lets nobody ask for health and shards, nor "
            "set how long deletions are remembered: what is written could not be relied on",
            "Use a hosted deployment of Elastic Cloud, or a cluster of your own.",
        )
    return product
