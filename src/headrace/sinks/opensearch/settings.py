"""What do a user's own settings and mappings do to an index: which need a new one, which change in place?

Pure, but for `adjust`. Settings are kept as a nested table below `index`, whatever way they were written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from headrace.errors import HeadraceError, Kind
from headrace.sinks.opensearch.client import Client, joined, path
from headrace.sinks.opensearch.options import IndexOptions
from headrace.sinks.opensearch.system_index import UNALTERED

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
"""What a living index takes. Anything else, and what determines documents (pipelines), needs a new index."""

_SECONDS = {"nanos": 1e-9, "micros": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_TIME_VALUE = re.compile(rf"(\d+)({'|'.join(_SECONDS)})", re.IGNORECASE)
SHORTEST_GC_DELETES = 3600.0
"""For so long (s) at least a delete is remembered: whoever writes is behind his reading by far less."""

_HIGHEST = 2**31 - 1
_TOMBSTONES = "24h"
"""How long a delete fences older writes while a generation is seeded; see decision 0064."""
_FLAT: dict[str, str | int] = {
    "flat_settings": "true",
    "ignore_unavailable": "true",
    "expand_wildcards": "all",
}

_NOT_FOR_FILES = ("routing_partition_size", "uuid", "creation_date", "provided_name", "version")


def settings_of(found: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in a file's content: with or without `settings` and `index` around them, dots or tables.

    Raises:
        ValueError: one that Headrace cannot work with; the text says which.
    """
    inner = found.get("settings", found)
    if not isinstance(inner, Mapping):
        raise ValueError("settings is no table")  # noqa: TRY004 - of a file, not of a caller
    flat = {name.removeprefix("index."): value for name, value in flattened(inner)}
    for name in flat:
        if name.partition(".")[0] in _NOT_FOR_FILES:
            raise ValueError(f"{name} cannot be set: documents could not be found again")
    if "gc_deletes" in flat and _seconds(flat["gc_deletes"]) < SHORTEST_GC_DELETES:
        raise ValueError(
            "gc_deletes must be 1h at least: a write that hung would bring back what was deleted"
        )
    if str(flat.get("translog.durability", "request")).lower() != "request":
        raise ValueError("translog.durability must be request: a node that crashes would lose documents")
    return _nested(flat)


def mappings_of(found: Mapping[str, Any]) -> dict[str, Any]:
    """The mappings in a file's content: with or without `mappings` around them.

    Raises:
        ValueError: what Headrace cannot work with.
    """
    inner = found.get("mappings", found)
    if not isinstance(inner, Mapping):
        raise ValueError("mappings is no table")  # noqa: TRY004
    for name in ("_source", "_routing"):
        if name in inner:
            raise ValueError(f"{name} cannot be set: documents could not be compared or found again")
    return dict(inner)


def merged(ours: Any, theirs: Any) -> Any:
    """`ours` with `theirs` over it: tables key by key, lists with theirs first, else theirs."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        both = {
            name: merged(value, theirs[name]) if name in theirs else value for name, value in ours.items()
        }
        return both | {name: value for name, value in theirs.items() if name not in ours}
    if isinstance(ours, list) and isinstance(theirs, list):
        return [*theirs, *ours]
    return theirs


def determining(options: IndexOptions) -> dict[str, object]:
    """What of a user's settings and mappings needs a new index when it changes; empty without any."""
    fixed = {name: value for name, value in flattened(options.settings) if not _DYNAMIC.fullmatch(name)}
    found: dict[str, object] = {"settings": fixed, "mappings": dict(options.mappings)}
    return {name: value for name, value in found.items() if value}


def adjust(client: Client, index: str, options: IndexOptions) -> dict[str, Any]:
    """Give a living index the settings that can change in place; returns those that were different.

    A setting that is asked for no more keeps its value.

    Raises:
        HeadraceError: SINK_REJECTED, for a value that the cluster refuses.
    """
    wanted: dict[str, Any] = {
        "refresh_interval": options.refresh_interval,
        "number_of_replicas": options.number_of_replicas,
        "gc_deletes": options.gc_deletes,
    }
    wanted |= {name: value for name, value in flattened(options.settings) if _DYNAMIC.fullmatch(name)}
    if "auto_expand_replicas" in wanted:
        del wanted["number_of_replicas"]
    answer = client.read(path(index, "_settings", query={"flat_settings": "true"})).json()
    [found] = (about["settings"] for about in answer.values())
    changed = {f"index.{name}": value for name, value in wanted.items() if _differs(found, name, value)}
    if changed:
        client.call("PUT", path(index, "_settings"), changed)
    return changed


def building(given: Mapping[str, Any]) -> dict[str, str]:
    """What an index has beside the settings that are given, while it is filled."""
    known = dict(flattened(given))
    return {name: value for name, value in UNALTERED.items() if name not in known} | {
        "gc_deletes": _TOMBSTONES
    }


def lasting(options: IndexOptions, *, seeded: bool, other: bool) -> dict[str, str]:
    """The settings that an index must keep, so that its documents stay what was written.

    Args:
        seeded: whether it is filled.
        other: it was made from other options, which pipelines are a part of.
    """
    given = {name: str(value) for name, value in flattened(options.settings)}
    durability = {"translog.durability": UNALTERED["translog.durability"]}
    own = durability if other else {name: given.get(name, value) for name, value in UNALTERED.items()}
    return own | {"gc_deletes": given.get("gc_deletes", options.gc_deletes) if seeded else _TOMBSTONES}


def keep(client: Client, wanted: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Set right what somebody has altered of `lasting`, by index; what that was, in words.

    Raises:
        HeadraceError: what the cluster does not bear.
    """
    altered = []
    for names in joined(sorted(wanted)):
        target = path(names, "_settings", query=_FLAT)
        for index, about in client.read(target).json().items():
            found, own = about["settings"], wanted.get(index, {})
            wrong = {name: value for name, value in own.items() if found.get(f"index.{name}") != value}
            if wrong:
                client.call("PUT", path(index, "_settings"), {"index": wrong})
                before = (f"{name} was {found.get(f'index.{name}', 'not set')}" for name in wrong)
                altered.append(f"{index}: {', '.join(before)}")
    return altered


def is_accepted(client: Client, name: str, body: Mapping[str, Any]) -> bool:
    """Whether the cluster would make an index of that body, asked without making one: as a template's.

    False where it would not, or does not say; `try_out` then knows. What a cluster does with templates of its
    own, and its limit of shards, only a real index shows.

    Raises:
        HeadraceError: SINK_UNREACHABLE, SINK_BUSY, AUTHENTICATION.
    """
    fitted = client.product().fitted({**body, "settings": {"index": body["settings"]["index"]}})
    template = {"settings": fitted["settings"], "mappings": fitted["mappings"]}
    asked = {"index_patterns": [name], "priority": _HIGHEST, "template": template}
    return client.read(path("_index_template", "_simulate"), asked, allow=(400, 403, 404, 405)).ok


def try_out(
    client: Client, name: str, body: Mapping[str, Any], look: Callable[[], object] = lambda: None
) -> None:
    """Make an index of that body and delete it again, without waiting for its shards.

    Args:
        look: is called while it is there.

    Raises:
        HeadraceError: SINK_REJECTED, what the cluster says of it; AUTHENTICATION.
    """
    settings = {**body["settings"]["index"], "number_of_replicas": 0, "hidden": True}
    target = path(name, query={"wait_for_active_shards": 0})
    try:
        client.call("PUT", target, client.product().fitted({**body, "settings": {"index": settings}}))
        look()
    finally:
        client.call("DELETE", path(name), allow=(403, 404))


def check_pipeline(client: Client, name: str) -> None:
    """Make sure that an ingest pipeline exists.

    Raises:
        HeadraceError: SINK_REJECTED.
    """
    if client.read(path("_ingest", "pipeline", name), allow=(403, 404)).status == 404:  # noqa: PLR2004
        raise HeadraceError(
            Kind.SINK_REJECTED,
            f"the cluster has no ingest pipeline {name!r}",
            "Make it, or correct `pipeline` of the sink.",
        )


def flattened(nested: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Every value with its dotted name."""
    for name, value in nested.items():
        if isinstance(value, Mapping):
            yield from flattened(value, f"{above}{name}.")
        else:
            yield above + name, value


def _seconds(value: object) -> float:
    """Of a time as OpenSearch writes it; 0 of what is none."""
    found = _TIME_VALUE.fullmatch(str(value).strip())
    return int(found[1]) * _SECONDS[found[2].lower()] if found else 0.0


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in flat.items():
        *above, last = name.split(".")
        table = result
        for part in above:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise ValueError(f"{name} is beside a value of the same name")  # noqa: TRY004
        table[last] = value
    return result


def _differs(found: Mapping[str, Any], name: str, value: Any) -> bool:
    """The cluster tells every value as a text."""
    text = value if isinstance(value, str) else json.dumps(value)
    told = found.get(f"index.{name}")
    return told != text if told is not None else value is not None
