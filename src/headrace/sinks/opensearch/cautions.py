"""What is not forbidden, and should be known before it matters?"""

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
    """What others on the way to clusters can read or alter; each is said once."""
    return list(dict.fromkeys(text for one in endpoints for text in _of_endpoint(one.normalised())))


def of_index(client: Client, index: str, name: str) -> list[str]:
    """What is to be known of an index or alias, that is there.

    Args:
        name: what people call it.

    Raises:
        HeadraceError: SINK_UNREACHABLE, SINK_BUSY, SINK_REJECTED.
    """
    found = []
    if replication_type(client, index) == "SEGMENT":
        found.append(
            f"{name} has segment replication: Headrace asks its primary shards, but readers of its replicas "
            "find a document later than refresh_interval says"
        )
    if client.read(path(index, "_stats", "docs"), allow=(400, _FORBIDDEN)).status == _FORBIDDEN:
        found.append(
            f"the user may not ask for the stats of {name} (indices:monitor/stats): that it was restored in "
            "place, or lost a shard, is not noticed"
        )
    return found


def replication_type(client: Client, index: str) -> str:
    """`DOCUMENT` or `SEGMENT`."""
    answers = client.read(path(index, "_settings", query=_SETTINGS)).json().values()
    told = [one.get("settings", {}).get(_TYPE) or one.get("defaults", {}).get(_TYPE) for one in answers]
    return "SEGMENT" if "SEGMENT" in told else "DOCUMENT"


def _of_endpoint(endpoint: Endpoint) -> Iterable[str]:
    for url in map(parse_url, endpoint.urls):
        place = f"{url.host}:{url.port}" if url.port else str(url.host)
        if url.scheme == "https" and not endpoint.verify:
            yield (
                f"tls_verify = false: whoever stands between here and {place} can read and alter everything; "
                "set ca_file to the PEM file of the certificate's authority instead"
            )
        if url.scheme == "http" and endpoint.authorization is not None and not _is_here(str(url.host)):
            yield f"the password or API key goes to {place} in the clear; use https"


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
