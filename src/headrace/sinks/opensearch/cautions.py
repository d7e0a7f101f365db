"""Warn about what works, but that the operator should know."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from urllib3.util import parse_url

from headrace.sinks.opensearch.client import Client, path
from headrace.sinks.opensearch.endpoint import Endpoint

_TYPE = "index.replication.type"
_SETTINGS = {"include_defaults": "true", "flat_settings": "true"}
_FORBIDDEN = 403


def of_endpoints(endpoints: Iterable[Endpoint]) -> list[str]:
    """Warn about connections that others on the network can read or alter; each warning once."""
    return list(
        dict.fromkeys(text for endpoint in endpoints for text in _endpoint_cautions(endpoint.normalised()))
    )


def of_index(client: Client, index: str, name: str) -> list[str]:
    """Warn about an existing index or alias.

    Args:
        name: the index's name as the operator knows it.

    Raises:
        HeadraceError: SINK_UNREACHABLE, SINK_BUSY, SINK_REJECTED.
    """
    cautions = []
    if replication_type(client, index) == "SEGMENT":
        cautions.append(
            f"{name} has segment replication: Headrace asks its primary shards, but readers of its replicas "
            "find a document later than refresh_interval says"
        )
    if client.read(path(index, "_stats", "docs"), allow=(400, _FORBIDDEN)).status == _FORBIDDEN:
        cautions.append(
            f"the user may not ask for the stats of {name} (indices:monitor/stats): that it was restored in "
            "place, or lost a shard, is not noticed"
        )
    return cautions


def replication_type(client: Client, index: str) -> str:
    """Return `DOCUMENT` or `SEGMENT`."""
    answers = client.read(path(index, "_settings", query=_SETTINGS)).json().values()
    types = [
        about.get("settings", {}).get(_TYPE) or about.get("defaults", {}).get(_TYPE) for about in answers
    ]
    return "SEGMENT" if "SEGMENT" in types else "DOCUMENT"


def _endpoint_cautions(endpoint: Endpoint) -> Iterable[str]:
    for url in map(parse_url, endpoint.urls):
        place = f"{url.host}:{url.port}" if url.port else str(url.host)
        if url.scheme == "https" and not endpoint.verify:
            yield (
                f"tls_verify = false: whoever stands between here and {place} can read and alter everything; "
                "set ca_file to the PEM file of the certificate's authority instead"
            )
        if url.scheme == "http" and endpoint.authorization is not None and not _is_loopback(str(url.host)):
            yield f"the password or API key goes to {place} in the clear; use https"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
