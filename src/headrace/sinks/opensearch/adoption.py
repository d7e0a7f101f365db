"""Move an alias that readers use from an index of another program to one of Headrace's, in one step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import HeadraceError, Kind
from headrace.sinks.opensearch.client import Client, path

_KEPT = ("filter", "index_routing", "search_routing", "is_write_index", "is_hidden")


@dataclass(frozen=True, slots=True)
class AliasHolder:
    """An index that a name leads to.

    Attributes:
        index: a concrete index; equal to the name where the name is an index, not an alias.
        alias: how the alias is defined there; None where the name is the index itself.
    """

    index: str
    alias: Mapping[str, Any] | None = field(default_factory=dict)


def holders(client: Client, name: str) -> list[AliasHolder]:
    """List every index that `name` leads to."""
    answer = client.read(path(name, query={"expand_wildcards": "all"}), allow=(404,))
    found = answer.json() if answer.ok else {}
    return [
        AliasHolder(index, None if index == name else about.get("aliases", {}).get(name, {}))
        for index, about in sorted(found.items())
    ]


def check_deletable(held: Sequence[AliasHolder], name: str, *, delete_index: bool) -> None:
    """Refuse a name that is itself an index, unless that may be deleted.

    Raises:
        HeadraceError: SINK_REJECTED.
    """
    if any(holder.alias is None for holder in held) and not delete_index:
        raise HeadraceError(
            Kind.SINK_REJECTED,
            f"{name} is an index, not an alias: it must be deleted before the name is free",
            "Add --delete-index; keep a snapshot or a copy (_clone) for the way back.",
        )


def adopt(client: Client, name: str, index: str, *, delete_index: bool = False) -> list[dict[str, Any]]:
    """Point `name` at `index` and at nothing else; returns the alias actions that undo it.

    The other indexes behind the alias stay as they are. Where the name is itself an index, that index is
    deleted with its documents in the same step: then the actions only free the name, for a copy of them.

    Args:
        index: the served generation.
        delete_index: whether such an index may be deleted.

    Raises:
        HeadraceError: SINK_REJECTED, where it may not be deleted, or the cluster refuses.
    """
    # Before the change: afterwards nobody knows how it was.
    current = [holder for holder in holders(client, name) if holder.index != index]
    check_deletable(current, name, delete_index=delete_index)
    actions: list[dict[str, Any]] = [
        {"remove_index": {"index": holder.index}}
        if holder.alias is None
        else {"remove": {"index": holder.index, "alias": name}}
        for holder in current
    ]
    actions.append({"add": {"index": index, "alias": name}})
    # One request, which the cluster carries out as a whole: no reader finds the name missing.
    client.call("POST", path("_aliases"), {"actions": actions})
    restoring = [_restore_action(holder, name) for holder in current if holder.alias is not None]
    generations = f"{index.rsplit('_', 2)[0]}_*"  # a later one may have the name by then
    return [{"remove": {"index": generations, "alias": name}}, *restoring]


def _restore_action(holder: AliasHolder, name: str) -> dict[str, Any]:
    kept = {key: value for key, value in (holder.alias or {}).items() if key in _KEPT}
    return {"add": {"index": holder.index, "alias": name, **kept}}
