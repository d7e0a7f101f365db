"""Options of the indexes that Headrace creates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

_NESTED_OBJECTS = 10_000
"""OpenSearch's default limit."""


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """Settings of new generations, and additions to their mappings.

    Attributes:
        number_of_shards: as in OpenSearch.
        number_of_replicas: as in OpenSearch, after the backfill.
        refresh_interval: how soon a followed index finds a new document (OpenSearch's notation).
        gc_deletes: how long a deleted document's version is remembered. An older write that comes later
            than this brings the document back, so it stays far above every time limit of a writer.
        text_analysis: `icu` needs the plugin analysis-icu on every node.
        auto_subfields: whether text and keyword fields get subfields for exact, analysed and
            case-insensitive search.
        settings: further index settings, as `settings.settings_of` returns them; they override the others.
        mappings: laid over the mapping of the schema, as `settings.mappings_of` returns them.
    """

    number_of_shards: int = 1
    number_of_replicas: int = 1
    refresh_interval: str = "1s"
    gc_deletes: str = "2h"
    text_analysis: Literal["builtin", "icu"] = "builtin"
    auto_subfields: bool = True
    settings: Mapping[str, Any] = field(default_factory=dict)
    mappings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def nested_objects(self) -> int:
        """Return how many nested objects one document may hold."""
        limit = self.settings.get("mapping", {}).get("nested_objects", {}).get("limit")
        return _NESTED_OBJECTS if limit is None else int(limit)
