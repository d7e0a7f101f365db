"""Which server is it, and what does it do differently from OpenSearch 3? Pure; the only place that asks.

Run against OpenSearch 3.8 and 2.19 and Elasticsearch 7.10: bulks, versions and aliases are alike in all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

_OLDEST = {"opensearch": (2, 0), "elasticsearch": (7, 10)}
"""`require_alias` keeps a bulk from making an index of a name that is gone; nothing older has it."""

_SEGMENTS = (2, 7)
"""From here on OpenSearch has segment replication, and searches that are sent to primary shards."""

_WITHOUT_LICENCE = ("oss", "unknown")
"""Builds of Elasticsearch that lack its own field types."""


@dataclass(frozen=True, slots=True)
class Product:
    """What a server says of itself.

    Attributes:
        name: `opensearch` or `elasticsearch`.
        version: as it prints it.
        build: which of Elasticsearch's builds.
    """

    name: str = "opensearch"
    version: str = "3.0.0"
    build: str = ""

    @classmethod
    def of(cls, about: object) -> Self:
        """From the answer to `GET /`.

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
        """Whether it lacks what the sink relies on."""
        found = re.match(r"(\d+)\.(\d+)", self.version)
        oldest = _OLDEST.get(self.name)
        return found is None or oldest is None or (int(found[1]), int(found[2])) < oldest

    @property
    def copies_segments(self) -> bool:
        """Whether an index may have segment replication: its replicas then find a document later."""
        found = re.match(r"(\d+)\.(\d+)", self.version)
        return self.name == "opensearch" and found is not None and (int(found[1]), int(found[2])) >= _SEGMENTS

    def fitted(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The body of an index's creation, as this server takes it."""
        if self.name != "elasticsearch":
            return dict(body)
        open_keys: dict[str, object] = {"type": "flattened"}
        if self.build in _WITHOUT_LICENCE:
            open_keys = {"type": "object", "enabled": False}
        return {**body, "mappings": _replaced(body["mappings"], {"type": "flat_object"}, open_keys)}


def _replaced(value: Any, old: Any, new: Any) -> Any:
    if value == old:
        return new
    if isinstance(value, Mapping):
        return {name: _replaced(one, old, new) for name, one in value.items()}
    return value
