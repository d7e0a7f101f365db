"""Recognise the server's product and version, and what differs from OpenSearch 3. Pure.

Run against OpenSearch 3.8 and 2.19 and Elasticsearch 7.10: bulks, versions and aliases are alike in all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

_OLDEST_VERSIONS = {"opensearch": (2, 0), "elasticsearch": (7, 10)}
"""`require_alias` keeps a bulk from creating an index of a deleted name; older versions lack it."""

_SEGMENT_REPLICATION = (2, 7)
"""First version of OpenSearch with segment replication, and with searches sent to primary shards."""

_WITHOUT_LICENCE = ("oss", "unknown")
"""Builds of Elasticsearch that lack its own field types."""


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
        match = re.match(r"(\d+)\.(\d+)", self.version)
        oldest = _OLDEST_VERSIONS.get(self.name)
        return match is None or oldest is None or (int(match[1]), int(match[2])) < oldest

    @property
    def copies_segments(self) -> bool:
        """Tell whether indexes may have segment replication, whose replicas find documents later."""
        match = re.match(r"(\d+)\.(\d+)", self.version)
        return (
            self.name == "opensearch"
            and match is not None
            and (int(match[1]), int(match[2])) >= _SEGMENT_REPLICATION
        )

    def fitted(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Adapt the body of an index's creation to this server."""
        if self.name != "elasticsearch":
            return dict(body)
        open_keys: dict[str, object] = {"type": "flattened"}
        if self.build in _WITHOUT_LICENCE:
            open_keys = {"type": "object", "enabled": False}
        return {**body, "mappings": _replace(body["mappings"], {"type": "flat_object"}, open_keys)}


def _replace(value: Any, old: Any, new: Any) -> Any:
    if value == old:
        return new
    if isinstance(value, Mapping):
        return {name: _replace(inner, old, new) for name, inner in value.items()}
    return value
