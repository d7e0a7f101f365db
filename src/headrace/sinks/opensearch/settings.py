"""Options, settings and mappings that an operator gives an index: check, compare and apply them.

Some need a new index, others change in place. Functions without a client are pure. Settings are held as
a nested table below `index`, however they were written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

from headrace.errors import HeadraceError, Kind
from headrace.sinks.opensearch.client import WHOLE_SOURCE, Client, join_names, path
from headrace.sinks.opensearch.replicas import replication_type

TEMPLATE_OVERRIDES = {
    "translog.durability": "request",
    "default_pipeline": "_none",
    "final_pipeline": "_none",
}
"""Settings that override index templates: what is acknowledged is durable and is stored as sent."""

_NESTED_OBJECTS = 10_000
"""OpenSearch's default limit."""

_DYNAMIC = re.compile(
    r"""refresh_interval | number_of_replicas | auto_expand_replicas | gc_deletes | hidden | priority
      | max_(?:result_window|inner_result_window|rescore_window|docvalue_fields_search|script_fields
            |ngram_diff|shingle_diff|refresh_listeners|terms_count|regex_length|slices_per_scroll)
      | (?:analyze\.max_token_count | highlight\.max_analyzed_offset | query\.default_field)
      | (?:blocks | routing\.allocation | routing\.rebalance | search | indexing\.slowlog | requests\.cache
            | merge\.policy | merge\.scheduler | unassigned\.node_left | write)\..+
      | translog\.(?:durability|sync_interval|flush_threshold_size)
      | mapping\.(?:total_fields|depth|nested_fields|nested_objects|field_name_length
            |dimension_fields)\.limit""",
    re.VERBOSE,
)
"""Settings that change in place. All others, and those that change documents, need a new index."""

_SECONDS = {"nanos": 1e-9, "micros": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_TIME_VALUE = re.compile(rf"(\d+)({'|'.join(_SECONDS)})", re.IGNORECASE)
SHORTEST_GC_DELETES = 3600.0
"""Lower limit of gc_deletes (s): the time between a read and its write is far shorter."""

_HIGHEST = 2**31 - 1
_TOMBSTONES = "24h"
"""gc_deletes during a backfill: how long a delete fences older writes (decision 0064)."""
_FLAT = {"flat_settings": "true", "ignore_unavailable": "true", "expand_wildcards": "all"}

_FORBIDDEN = 403

_WHOLE_SOURCES: tuple[object, ...] = (True, "stored", [])
"""Values of the parameters of `_source` with which it is what was written."""

_NOT_FOR_FILES = ("routing_partition_size", "uuid", "creation_date", "provided_name", "version")


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
        settings: further index settings, as `settings_of` returns them; they override the others.
        mappings: laid over the mapping of the schema, as `mappings_of` returns them.
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


def settings_of(found: Mapping[str, Any]) -> dict[str, Any]:
    """Read the settings in a file's content.

    They may stand below `settings` and `index` or not, with dotted names or nested.

    Raises:
        ValueError: a setting that Headrace does not support; the text names it.
    """
    inner = found.get("settings", found)
    if not isinstance(inner, Mapping):
        raise ValueError("settings is no table")  # noqa: TRY004 - of a file, not of a caller
    flat = {name.removeprefix("index."): value for name, value in flatten(inner)}
    for name in flat:
        if name.partition(".")[0] in _NOT_FOR_FILES:
            raise ValueError(f"{name} cannot be set: documents could not be found again")
    # An older write that comes after this time brings a deleted document back.
    if "gc_deletes" in flat and _seconds(flat["gc_deletes"]) < SHORTEST_GC_DELETES:
        raise ValueError(
            "gc_deletes must be 1h at least: a write that hung would bring back what was deleted"
        )
    if str(flat.get("translog.durability", "request")).lower() != "request":
        raise ValueError("translog.durability must be request: a node that crashes would lose documents")
    if (changing := changed_source(flat, {})) is not None:
        raise ValueError(f"{changing}: documents would be shown otherwise than they were written")
    # The one value that is left of these is set wherever a server knows them (`Product.adapt`).
    return _nest({name: value for name, value in flat.items() if name not in _WHOLE_SOURCE})


def changed_source(settings: Mapping[str, Any], mappings: Mapping[str, Any]) -> str | None:
    """Return what keeps an index from showing documents as they were written; None where nothing does.

    Args:
        settings: with dotted names, without `index.`.
        mappings: of the index.
    """
    for name, value in _WHOLE_SOURCE.items():
        if name in settings and _text(settings[name]).lower() != value:
            return f"{name} must be {value}"
    changed = {name for name, value in mappings.get("_source", {}).items() if value not in _WHOLE_SOURCES}
    return f"_source has {', '.join(sorted(changed))}" if changed else None


def mappings_of(found: Mapping[str, Any]) -> dict[str, Any]:
    """Read the mappings in a file's content, with or without `mappings` around them.

    Raises:
        ValueError: a mapping that Headrace does not support.
    """
    inner = found.get("mappings", found)
    if not isinstance(inner, Mapping):
        raise ValueError("mappings is no table")  # noqa: TRY004
    for name in ("_source", "_routing"):
        if name in inner:
            raise ValueError(f"{name} cannot be set: documents could not be compared or found again")
    return dict(inner)


def merge(ours: Any, theirs: Any) -> Any:
    """Merge `theirs` over `ours`: tables key by key, lists with theirs first, other values replaced."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        both = {name: merge(value, theirs[name]) if name in theirs else value for name, value in ours.items()}
        return both | {name: value for name, value in theirs.items() if name not in ours}
    if isinstance(ours, list) and isinstance(theirs, list):
        return [*theirs, *ours]
    return theirs


def fixed_settings(options: IndexOptions) -> dict[str, object]:
    """Return the operator's settings and mappings that need a new index when they change."""
    fixed = {name: value for name, value in flatten(options.settings) if not _DYNAMIC.fullmatch(name)}
    found: dict[str, object] = {"settings": fixed, "mappings": dict(options.mappings)}
    return {name: value for name, value in found.items() if value}


def adjust(client: Client, index: str, options: IndexOptions) -> dict[str, Any]:
    """Update the settings of an existing index that can change in place; returns those that were different.

    A setting that the operator has removed keeps its value.

    Raises:
        HeadraceError: SINK_REJECTED, for a value that the cluster refuses.
    """
    wanted: dict[str, Any] = {
        "refresh_interval": options.refresh_interval,
        "number_of_replicas": options.number_of_replicas,
        "gc_deletes": options.gc_deletes,
    }
    wanted |= {name: value for name, value in flatten(options.settings) if _DYNAMIC.fullmatch(name)}
    if "auto_expand_replicas" in wanted:
        # The cluster sets the number by itself then: it would be set back in every look.
        del wanted["number_of_replicas"]
    answer = client.read(path(index, "_settings", query={"flat_settings": "true"})).json()
    [found] = (about["settings"] for about in answer.values())
    changed = {f"index.{name}": value for name, value in wanted.items() if _differs(found, name, value)}
    if changed:
        client.call("PUT", path(index, "_settings"), changed)
    return changed


def backfill_settings(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the additional settings of an index during its backfill."""
    known = dict(flatten(settings))
    overrides = {name: value for name, value in TEMPLATE_OVERRIDES.items() if name not in known}
    return overrides | {"gc_deletes": _TOMBSTONES}


def required_settings(options: IndexOptions, *, backfilled: bool, other: bool) -> dict[str, str]:
    """Return the settings that an index must keep, so that its documents stay as they were written.

    Args:
        options: the present options of the index.
        backfilled: whether its backfill is complete.
        other: whether it was created with other options, which include pipelines.
    """
    own = {"gc_deletes": options.gc_deletes} | dict(flatten(options.settings))
    names = ("translog.durability",) if other else tuple(TEMPLATE_OVERRIDES)
    required = {name: str(own.get(name, TEMPLATE_OVERRIDES[name])) for name in names}
    return required | {"gc_deletes": str(own["gc_deletes"]) if backfilled else _TOMBSTONES}


def restore_settings(
    client: Client,
    wanted: Mapping[str, Mapping[str, str]],
    alone: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> list[str]:
    """Restore `required_settings`, by index, where they were changed; returns what was changed, in words.

    Args:
        alone: called with each index that is changed; what it returns may suppress the refusal of one.

    Raises:
        HeadraceError: any refusal of the cluster.
    """
    changes = []
    for names in join_names(sorted(wanted)):
        target = path(names, "_settings", query=_FLAT)
        for index, about in client.read(target).json().items():
            found, own = about["settings"], wanted.get(index, {})
            changed = {name: value for name, value in own.items() if found.get(f"index.{name}") != value}
            if changed:
                before = (f"{name} was {found.get(f'index.{name}', 'not set')}" for name in changed)
                with alone(index):
                    client.call("PUT", path(index, "_settings"), {"index": changed})
                    changes.append(f"{index}: {', '.join(before)}")
    return changes


def is_accepted(client: Client, name: str, body: Mapping[str, Any]) -> bool:
    """Tell whether the cluster would create an index of that body, without creating one.

    It is simulated as a template. False where the cluster would refuse, or does not answer; `try_creation`
    then finds out. The effect of the cluster's own templates and of its limit of shards shows only with a
    real index.

    Raises:
        HeadraceError: SINK_UNREACHABLE, SINK_BUSY, AUTHENTICATION.
    """
    # Of the templates that match an index only the one with the highest priority counts.
    request = {"index_patterns": [name], "priority": _HIGHEST, "template": client.product().adapt(body)}
    return client.read(path("_index_template", "_simulate"), request, allow=(400, 403, 404, 405)).ok


def try_creation(
    client: Client, name: str, body: Mapping[str, Any], look: Callable[[], object] = lambda: None
) -> None:
    """Create an index of that body and delete it again, without waiting for its shards.

    Args:
        look: is called while the index exists.

    Raises:
        HeadraceError: SINK_REJECTED, with the cluster's reason; AUTHENTICATION.
    """
    # No reader's pattern finds a hidden index.
    settings = {**body["settings"]["index"], "number_of_replicas": 0, "hidden": True}
    target = path(name, query={"wait_for_active_shards": 0})
    try:
        client.call("PUT", target, client.product().adapt({**body, "settings": {"index": settings}}))
        if (fault := template_fault(client, name)) is not None:
            raise fault
        look()
    finally:
        client.call("DELETE", path(name), allow=(403, 404))


def template_fault(client: Client, index: str) -> HeadraceError | None:
    """Return the error of an index that was just created and shows other documents than are written.

    What the body of its creation cannot override comes from a template of the cluster.
    """
    [found] = client.read(path(index, query={"flat_settings": "true"})).json().values()
    settings = {name.removeprefix("index."): value for name, value in found["settings"].items()}
    changing = changed_source(client.product().with_defaults(settings), found["mappings"])
    if changing is None:
        return None
    return HeadraceError(
        Kind.SINK_REJECTED,
        f"an index template of the cluster applies to {index}, and then {changing}: documents would be shown "
        "otherwise than they were written",
        "Exclude the prefix from the template, or set another `prefix`.",
    )


def check_pipeline(client: Client, name: str) -> None:
    """Check that an ingest pipeline exists.

    Raises:
        HeadraceError: SINK_REJECTED.
    """
    # A role that may not look (403) may write through the pipeline all the same.
    if client.read(path("_ingest", "pipeline", name), allow=(403, 404)).status == 404:  # noqa: PLR2004
        raise HeadraceError(
            Kind.SINK_REJECTED,
            f"the cluster has no ingest pipeline {name!r}",
            "Make it, or correct `pipeline` of the sink or the settings_file that names it.",
        )


def index_warnings(client: Client, index: str, name: str) -> list[str]:
    """List what works with an existing index or alias, but that the operator should know.

    Args:
        name: the index's name as the operator knows it.

    Raises:
        HeadraceError: SINK_UNREACHABLE, SINK_BUSY, SINK_REJECTED.
    """
    warnings = []
    if replication_type(client, index) == "SEGMENT":
        warnings.append(
            f"{name} has segment replication: Headrace asks its primary shards, but readers of its replicas "
            "find a document later than refresh_interval says"
        )
    if client.read(path(index, "_stats", "docs"), allow=(400, _FORBIDDEN)).status == _FORBIDDEN:
        warnings.append(
            f"the user may not ask for the stats of {name} (indices:monitor/stats): that it was restored in "
            "place, or lost a shard, is not noticed"
        )
    return warnings


def flatten(nested: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Iterate over all values with their dotted names."""
    for name, value in nested.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{above}{name}.")
        else:
            yield above + name, value


def _seconds(value: object) -> float:
    """Convert a time in OpenSearch's notation to seconds; 0 for any other text."""
    found = _TIME_VALUE.fullmatch(str(value).strip())
    return int(found[1]) * _SECONDS[found[2].lower()] if found else 0.0


def _nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Nest settings; one beside a value of its first name, as `knn.algo_param`, keeps the dots."""
    result: dict[str, Any] = {}
    for name, value in sorted(flat.items()):
        table, left = result, name
        while "." in left and isinstance(below := table.setdefault(left.partition(".")[0], {}), dict):
            table, left = below, left.partition(".")[2]
        table[left] = value
    return result


def _differs(found: Mapping[str, Any], name: str, value: Any) -> bool:
    """Compare a wanted value with the cluster's, which reports every value as text."""
    actual = found.get(f"index.{name}")
    return actual != _text(value) if actual is not None else value is not None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


_WHOLE_SOURCE = {name: _text(value) for _, _, name, value in WHOLE_SOURCE}
"""Settings with another value than this one show other documents than were written (decision 0142)."""
