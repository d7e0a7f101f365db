"""How does a name that readers know pass from somebody else's index to one of ours, in one step?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import HeadraceError, Kind
from headrace.sinks.opensearch.client import Client, path

_KEPT = ("filter", "index_routing", "search_routing", "is_write_index", "is_hidden")


@dataclass(frozen=True, slots=True)
class AliasHolder:
    """What a name leads to.

    Attributes:
        index: a concrete index; of the same name as the alias where the name is no alias.
        alias: how the alias is defined there; None where the name is the index's own.
    """

    index: str
    alias: Mapping[str, Any] | None = field(default_factory=dict)


def holders(client: Client, name: str) -> list[AliasHolder]:
    """Everything that `name` leads to."""
    answer = client.read(path(name, query={"expand_wildcards": "all"}), allow=(404,))
    found = answer.json() if answer.ok else {}
    return [
        AliasHolder(index, None if index == name else about.get("aliases", {}).get(name, {}))
        for index, about in sorted(found.items())
    ]


def adopt(client: Client, name: str, index: str, *, delete_index: bool = False) -> list[dict[str, Any]]:
    """Let `name` lead to `index` and to nothing else; returns the alias actions that take it back.

    The indexes that it led to stay as they are, but one whose own name it is: that goes, with its
    documents, in the same step, and cannot be taken back.

    Args:
        delete_index: whether such an index may go.

    Raises:
        HeadraceError: SINK_REJECTED, where it may not, or the cluster refuses.
    """
    held = [one for one in holders(client, name) if one.index != index]
    if any(one.alias is None for one in held) and not delete_index:
        raise HeadraceError(
            Kind.SINK_REJECTED,
            f"{name} is no alias but an index, which has to be deleted before the name is free",
            "Add --delete-index; keep a snapshot or a copy (_reindex) for the way back.",
        )
    actions: list[dict[str, Any]] = [
        {"remove_index": {"index": one.index}}
        if one.alias is None
        else {"remove": {"index": one.index, "alias": name}}
        for one in held
    ]
    actions.append({"add": {"index": index, "alias": name}})
    client.call("POST", path("_aliases"), {"actions": actions})
    back = [_added(one, name) for one in held if one.alias is not None]
    return [{"remove": {"index": index, "alias": name}}, *back]


def _added(one: AliasHolder, name: str) -> dict[str, Any]:
    kept = {key: value for key, value in (one.alias or {}).items() if key in _KEPT}
    return {"add": {"index": one.index, "alias": name, **kept}}
