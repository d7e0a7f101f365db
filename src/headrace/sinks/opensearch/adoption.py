"""Move an alias that readers use from an index of another program to one of Headrace's, in one step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import HeadraceError, Kind
from headrace.sinks.opensearch.client import Client, path
from headrace.sinks.opensearch.generations import Generation, Generations

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


def find_published(generations: Generations, index: str) -> Generation:
    """Return the generation of a logical index that readers see.

    Raises:
        HeadraceError: SLOT_UNKNOWN where there is none.
    """
    served = generations.published(index)
    if served is None:
        raise HeadraceError(
            Kind.SLOT_UNKNOWN, f"the index {index} is not served yet", "Let `headrace run` backfill it first."
        )
    return served


def adopt(
    client: Client, generations: Generations, index: str, name: str, *, delete_index: bool = False
) -> tuple[str, list[dict[str, Any]]]:
    """Point `name` at the published generation of `index` and at nothing else.

    The other indexes behind the alias stay as they are. Where the name is itself an index, that index is
    deleted with its documents in the same step: then the actions only free the name, for a copy of them.

    Args:
        client: of the cluster that `generations` are in.
        generations: those of the deployment.
        index: the logical index.
        name: what readers ask for.
        delete_index: whether an index of that name may be deleted.

    Returns:
        The generation that the name leads to, and the alias actions that undo it.

    Raises:
        HeadraceError: SLOT_UNKNOWN, where nothing is published; SINK_REJECTED, where an index may not be
            deleted, or the cluster refuses.
    """
    served = find_published(generations, index)
    restoring = _point(client, name, served.index, delete_index=delete_index)
    # A run that publishes takes along the names of the generation before: it may have missed this one.
    while (now := find_published(generations, index)) != served:
        served = now
        _point(client, name, served.index, delete_index=delete_index)
    # A later one may have the name by then.
    return served.index, [{"remove": {"index": f"{generations.alias(index)}_*", "alias": name}}, *restoring]


def _point(client: Client, name: str, index: str, *, delete_index: bool) -> list[dict[str, Any]]:
    """Point `name` at a concrete index; returns the actions that give it to its former holders."""
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
    return [_restore_action(holder, name) for holder in current if holder.alias is not None]


def _restore_action(holder: AliasHolder, name: str) -> dict[str, Any]:
    kept = {key: value for key, value in (holder.alias or {}).items() if key in _KEPT}
    return {"add": {"index": holder.index, "alias": name, **kept}}
