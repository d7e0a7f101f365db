"""Create, finish, publish, list and drop generations: the concrete indexes of a logical index.

`{prefix}{name}_{hash}_{number}` is a generation. It is written through its own alias `….write`: OpenSearch
can be told to refuse a bulk on a name that is no alias (`require_alias`), but not to refuse to create a
missing index. It is read through the alias `{prefix}{name}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import HeadraceError, Kind
from headrace.sinks.opensearch.client import Client, join_names, path
from headrace.sinks.opensearch.documents import refresh
from headrace.sinks.opensearch.settings import IndexOptions, adjust, backfill_settings, template_fault

_OURS = "headrace"
_WRITE = ".write"
_NARROWING = frozenset({"filter", "search_routing"})


def write_alias(index: str) -> str:
    """Return the alias by which a concrete index is written."""
    return index + _WRITE


@dataclass(frozen=True, slots=True)
class Generation:
    """One concrete index of a logical index.

    Attributes:
        name: the logical index.
        index: the concrete index.
        hash: of everything that determines the documents, hexadecimal.
        number: counts the generations of `name`.
        uuid: the index's UUID in OpenSearch.
        aliases: all names that lead to it.
    """

    name: str
    index: str
    hash: str
    number: int
    uuid: str
    aliases: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def target(self) -> str:
        """Return the alias for writing."""
        return write_alias(self.index)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the aliases for readers, sorted."""
        return tuple(sorted(alias for alias in self.aliases if not alias.endswith(_WRITE)))


class Generations:
    """Manages the generations under one prefix."""

    def __init__(self, client: Client, prefix: str = "") -> None:
        self._client = client
        self._prefix = prefix

    def alias(self, name: str) -> str:
        """Return the alias under which the documents of `name` are read."""
        return self._prefix + name

    def existing(self, name: str) -> list[Generation]:
        """List the generations of `name`, oldest first; other indexes with similar names are left out."""
        return sorted(self.find([name]).values(), key=lambda generation: generation.number)

    def all(self) -> list[Generation]:
        """List every generation under the prefix, sorted by index."""
        return list(self._made(f"{self._prefix}*"))

    def find(self, indexes: Iterable[str]) -> dict[str, Generation]:
        """Find the generations of these logical indexes, closed ones too, by the concrete index's name.

        One request covers twenty logical indexes.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY, AUTHENTICATION.
        """
        wanted = set(indexes)
        return {
            generation.index: generation
            for names in join_names([f"{self.alias(name)}_*" for name in sorted(wanted)])
            for generation in self._made(names)
            if generation.name in wanted
        }

    def behind(self, aliases: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Find the indexes that aliases lead to, with what each alias has there; twenty in a request.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY, AUTHENTICATION.
        """
        wanted = set(aliases)
        found: dict[str, dict[str, Any]] = {}
        for names in join_names(sorted(wanted)):
            answer = self._client.read(path("_alias", names), allow=(404,))  # 404: an alias is missing
            for index, about in answer.json().items():
                for alias, how in about["aliases"].items() if isinstance(about, dict) else ():
                    if alias in wanted:
                        found.setdefault(alias, {})[index] = how
        return found

    def create(self, name: str, spec_hash: str, body: dict[str, Any]) -> Generation:
        """Create the next generation of `name`, set up for a backfill: no refresh, no replicas, deletes kept.

        Args:
            name: the logical index.
            spec_hash: hexadecimal, covers everything that determines the documents.
            body: as returned by `mapping`.

        Raises:
            HeadraceError: SINK_REJECTED, where OpenSearch does not accept the mapping or the name; SINK_BUSY,
                where no node takes its shards.
        """
        # Also by other indexes with similar names.
        taken = [self._match(name, index) for index in self._about(f"{self.alias(name)}_*")]
        # Above all that exist, also where another program has made an index of such a name.
        number = max((int(match[2]) for match in taken if match is not None), default=0) + 1
        index = f"{self.alias(name)}_{spec_hash}_{number}"
        meta = {_OURS: {"index": name, "hash": spec_hash}}
        settings = {
            **body["settings"]["index"],
            "refresh_interval": "-1",
            "number_of_replicas": 0,
            **backfill_settings(body["settings"]["index"]),
        }
        request = {
            "settings": {"index": settings},
            "mappings": {**body["mappings"], "_meta": meta},
            "aliases": {index + _WRITE: {"is_hidden": True}},
        }
        target = path(index, query={"timeout": self._client.server_timeout})
        answer = self._client.call("PUT", target, self._client.product().adapt(request))
        generation = self.find([name]).get(index)
        # Acknowledged too late: a node may not have heard of it yet.
        if generation is None:
            raise HeadraceError(
                Kind.SINK_BUSY,
                f"the cluster was told to create the index {index}, and does not know it yet",
                "Look at the cluster's health and its pending tasks.",
            )
        # Without its shards it would have no histories, by which a restored index is recognised.
        if not answer.json()["shards_acknowledged"]:
            why = self._why_unassigned(index)
            self.drop(generation)
            raise HeadraceError(
                Kind.SINK_BUSY,
                f"the cluster was told to create the index {index}, and no node has taken its shards: {why}",
                "Look at the cluster's disk watermarks and its rules of allocation.",
            )
        # A template may change what is stored without any error at creation.
        if (fault := template_fault(self._client, index)) is not None:
            self.drop(generation)
            raise fault
        return generation

    def _why_unassigned(self, index: str) -> str:
        """Return why a node does not take the first shard of an index."""
        shard = {"index": index, "shard": 0, "primary": True}
        answer = self._client.read(path("_cluster", "allocation", "explain"), shard, allow=(400, 403))
        nodes = answer.json().get("node_allocation_decisions", ()) if answer.ok else ()
        rules = (rule for node in nodes for rule in node.get("deciders", ()))
        return next((rule["explanation"] for rule in rules if rule["decision"] == "NO"), "no reason is known")

    def finish(self, generation: Generation, options: IndexOptions) -> None:
        """Give a backfilled generation its lasting settings.

        During a backfill an index has no replicas and no refresh, and remembers deletes for longer.
        """
        adjust(self._client, generation.index, options)

    def publish(self, generation: Generation) -> None:
        """Point the alias at `generation` and at nothing else, in one step; adopted names move too.

        Searches find all that was written to it until now.

        Raises:
            HeadraceError: SINK_REJECTED, where the alias's name belongs to an index of another program.
        """
        alias, index = self.alias(generation.name), generation.index
        # One request: the cluster applies all actions in one step, so readers see one index at any time.
        actions: list[dict[str, Any]] = [{"add": {"index": index, "alias": alias}}]
        for holder, aliases in self._holders(generation.name).items():
            for name in holder.names if holder.index != index else ():
                actions.append({"remove": {"index": holder.index, "alias": name}})
                if name != alias:
                    actions.append({"add": {"index": index, "alias": name, **aliases[name]}})
        # A search would find what an index held at its last refresh, and a backfilled one had none.
        refresh(self._client, index)
        self._client.call("POST", path("_aliases"), {"actions": actions})
        # What came meanwhile was refreshed by the alias, which led to the other index until just now.
        refresh(self._client, index)

    def faults_of_aliases(self, served: Mapping[str, str]) -> dict[str, str]:
        """Explain, by index, why readers do not see the whole generation that it should serve.

        Args:
            served: the concrete generation, by index.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY, AUTHENTICATION.
        """
        known = self.behind(self.alias(name) for name in served)
        found = {}
        for name, index in served.items():
            alias = self.alias(name)
            leads = known.get(alias, {})
            if leads.keys() != {index}:
                found[name] = (
                    f"the alias {alias} leads to {', '.join(sorted(leads)) or 'nothing'}, not to {index}"
                )
            elif narrowed := sorted(_NARROWING & leads[index].keys()):
                found[name] = f"the alias {alias} has a {narrowed[0]}: its readers do not see every document"
        return found

    def published(self, name: str) -> Generation | None:
        """Return the generation that the alias serves, or None."""
        return next(iter(self._holders(name)), None)

    def drop(self, generation: Generation) -> None:
        """Delete the generation and its documents, unless it is gone or another index has its name."""
        answer = self._client.read(path(generation.index, "_settings"), allow=(404,))
        # After a restore of the cluster another index may have the name.
        if answer.ok and answer.json()[generation.index]["settings"]["index"]["uuid"] == generation.uuid:
            self._client.call("DELETE", path(generation.index), allow=(404,))

    def _holders(self, name: str) -> dict[Generation, dict[str, Any]]:
        """Find the generations behind the alias, with what each of their aliases has there.

        Raises:
            HeadraceError: SINK_REJECTED, where one of them is not a generation.
        """
        alias = self.alias(name)
        holders = {}
        for index, about in self._about(alias).items():
            generation = self._read(index, about)
            # What others have made is never touched.
            if index == alias or generation is None or generation.name != name:
                what = "an index" if index == alias else f"an alias of the index {index}"
                raise HeadraceError(
                    Kind.SINK_REJECTED,
                    f"the name {alias} is taken by {what} that Headrace did not make",
                    "Set a `prefix`, run beside it, and take the name over with `headrace adopt`; or "
                    "remove what holds it.",
                )
            holders[generation] = about["aliases"]
        return holders

    def _made(self, names: str) -> Iterator[Generation]:
        """Yield the generations among the indexes of these names, sorted by index."""
        for index, about in sorted(self._about(names).items()):
            if (generation := self._read(index, about)) is not None:
                yield generation

    def _read(self, index: str, about: Mapping[str, Any]) -> Generation | None:
        """Return the generation that an index is; None for one that Headrace has not made."""
        ours: dict[str, str] = about.get("mappings", {}).get("_meta", {}).get(_OURS, {})
        name = ours.get("index", "")
        match = self._match(name, index) if name else None
        if match is None:
            return None
        uuid, aliases = about["settings"]["index"]["uuid"], frozenset(about.get("aliases", ()))
        return Generation(name, index, match[1], int(match[2]), uuid, aliases)

    def _about(self, names: str) -> dict[str, dict[str, Any]]:
        """Read aliases, mappings and settings of the indexes of these names, hidden and closed ones too."""
        query = {"expand_wildcards": "all", "ignore_unavailable": "true"}
        answer = self._client.read(path(names, query=query), allow=(404,))
        return answer.json() if answer.ok else {}

    def _match(self, name: str, index: str) -> re.Match[str] | None:
        return re.fullmatch(re.escape(self.alias(name)) + r"_([0-9a-f]+)_([0-9]+)", index)
