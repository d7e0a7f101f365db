"""Which concrete index holds an index's documents, and how does the next one take its place?

`{prefix}{name}_{hash}_{number}` is a generation. It is written through its own alias `….write`, because
OpenSearch can be told to refuse a bulk on a name that is no alias (`require_alias`) but not to refuse to
make a missing index. It is read through the alias `{prefix}{name}`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import HeadraceError, Kind
from headrace.sinks.opensearch.client import Client, joined, path
from headrace.sinks.opensearch.contents import count
from headrace.sinks.opensearch.options import IndexOptions
from headrace.sinks.opensearch.settings import building, keep
from headrace.sinks.opensearch.shard_history import Identity, identities

_OURS = "headrace"
_WRITE = ".write"
_NARROWING = frozenset({"filter", "search_routing"})


@dataclass(frozen=True, slots=True)
class Generation:
    """One concrete index of the logical index `name`; `uuid` is what OpenSearch gave it at its birth.

    `schema` is the normalised one that it was made for, as JSON text.
    """

    name: str
    index: str
    hash: str
    number: int
    uuid: str
    schema: str = field(default="", compare=False)

    @property
    def target(self) -> str:
        """The alias that a writer writes to."""
        return self.index + _WRITE


@dataclass(frozen=True, slots=True)
class Found:
    """An index that is written to: `uuid` is its own, `aliases` lead to it."""

    uuid: str
    aliases: frozenset[str]


class Generations:
    """The generations under one prefix."""

    def __init__(self, client: Client, prefix: str = "") -> None:
        self._client = client
        self._prefix = prefix

    def alias(self, name: str) -> str:
        """Where the documents of `name` are read."""
        return self._prefix + name

    def existing(self, name: str) -> list[Generation]:
        """Every generation of `name`, oldest first; an index that only looks like one is left out."""
        known = [self._read(name, index, about) for index, about in self._found(name).items()]
        return sorted((one for one in known if one is not None), key=lambda one: one.number)

    def identities(self, indexes: Iterable[str]) -> dict[str, Identity]:
        """What cannot stay the same where their documents become others, as far as it is known.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY.
        """
        return identities(self._client, indexes)

    def is_gone(self, index: str) -> bool:
        """Whether there is no index of this name.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY.
        """
        return self._client.call("HEAD", path(index), allow=(403, 404)).status == 404  # noqa: PLR2004

    def made(self) -> list[tuple[Generation, tuple[str, ...]]]:
        """Every generation of every index under the prefix, with the aliases that readers know, by name."""
        answer = self._client.read(
            path(f"{self._prefix}*", query={"expand_wildcards": "all", "allow_no_indices": "true"})
        )
        result = []
        for index, about in sorted(answer.json().items()):
            name = about.get("mappings", {}).get("_meta", {}).get(_OURS, {}).get("index", "")
            generation = self._read(name, index, about)
            if generation is not None:
                names = (alias for alias in about.get("aliases", {}) if not alias.endswith(_WRITE))
                result.append((generation, tuple(sorted(names))))
        return result

    def look(self, indexes: Sequence[str]) -> dict[str, Found]:
        """What is written through the aliases of these generations, by the index's name.

        Usually they themselves. One that is missing is gone, or its alias is; another one has taken an alias.
        One request for twenty of them.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY: nobody knows.
        """
        found: dict[str, Found] = {}
        for names in joined([index + _WRITE for index in indexes]):
            query = {"ignore_unavailable": "true", "filter_path": "*.aliases,*.settings.index.uuid"}
            answer = self._client.read(path(names, query=query), allow=(404,))
            for index, about in (answer.json() if answer.ok else {}).items():
                uuid = about["settings"]["index"]["uuid"]
                found[index] = Found(uuid, frozenset(about.get("aliases", ())))
        return found

    def create(self, name: str, spec_hash: str, body: dict[str, Any], schema: str = "") -> Generation:
        """Make the next generation of `name`, set up to be seeded: no refresh, no replicas, deletes kept.

        Args:
            name: the logical index.
            spec_hash: hexadecimal, covers everything that determines the documents.
            body: what `mapping` gave.
            schema: the normalised schema, kept with the index.

        Raises:
            HeadraceError: SINK_REJECTED, where OpenSearch does not accept the mapping or the name.
        """
        taken = [self._name(name, index) for index in self._found(name)]  # also by what only looks like one
        number = max((int(one[2]) for one in taken if one is not None), default=0) + 1
        index = f"{self.alias(name)}_{spec_hash}_{number}"
        meta = {_OURS: {"index": name, "hash": spec_hash, "schema": schema}}
        settings = {
            **body["settings"]["index"],
            "refresh_interval": "-1",
            "number_of_replicas": 0,
            **building(body["settings"]["index"]),
        }
        request = {
            "settings": {"index": settings},
            "mappings": {**body["mappings"], "_meta": meta},
            "aliases": {index + _WRITE: {"is_hidden": True}},
        }
        self._client.call("PUT", path(index), self._client.product().fitted(request))
        return Generation(name, index, spec_hash, number, self._uuid(index), schema)

    def finish(self, generation: Generation, options: IndexOptions) -> None:
        """Make all that was seeded searchable and give the index its lasting settings."""
        self.finish_all([(generation, options)])

    def finish_all(self, seeded: Sequence[tuple[Generation, IndexOptions]]) -> None:
        """The same for several: twenty that get the same settings are one change of the cluster's state."""
        alike: dict[str, list[str]] = {}
        for generation, options in seeded:
            given = options.settings
            lasting = {
                "refresh_interval": given.get("refresh_interval", options.refresh_interval),
                "number_of_replicas": given.get("number_of_replicas", options.number_of_replicas),
                "gc_deletes": given.get("gc_deletes", options.gc_deletes),
            }
            alike.setdefault(json.dumps(lasting, sort_keys=True), []).append(generation.index)
        for text, indexes in alike.items():
            for names in joined(indexes):
                self._client.call("PUT", path(names, "_settings"), {"index": json.loads(text)})
                self._client.call("POST", path(names, "_refresh"))

    def count(self, index: str) -> int | None:
        """How many documents are findable in one, whoever wrote them."""
        return count(self._client, index)

    def keep_settings(self, wanted: Mapping[str, Mapping[str, str]]) -> list[str]:
        """Set right what somebody has altered of these settings of generations; what that was, in words.

        Raises:
            HeadraceError: what the cluster does not bear.
        """
        return keep(self._client, wanted)

    def publish(self, generation: Generation) -> None:
        """Point the alias at `generation` and at nothing else, in one step; adopted names come along.

        Raises:
            HeadraceError: SINK_REJECTED, where the alias's name belongs to something that is not ours.
        """
        alias = self.alias(generation.name)
        held = [one for one in self._holders(generation.name) if one != generation.index]
        actions = [{"remove": {"index": one, "alias": alias}} for one in held]
        actions.append({"add": {"index": generation.index, "alias": alias}})
        for one in held:
            for name, how in self._names(one, alias).items():
                actions.append({"remove": {"index": one, "alias": name}})
                actions.append({"add": {"index": generation.index, "alias": name, **how}})
        self._client.call("POST", path("_aliases"), {"actions": actions})

    def faults_of_aliases(self, served: Mapping[str, str]) -> dict[str, str]:
        """Why readers of an index do not see the whole generation that it should serve, by index.

        One request for twenty of them.

        Args:
            served: the concrete generation, by index.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY, AUTHENTICATION.
        """
        known: dict[str, dict[str, Any]] = {}
        for names in joined([self.alias(name) for name in served]):
            answer = self._client.read(path("_alias", names), allow=(404,))  # 404: one of them is not there
            for one, about in answer.json().items():
                for alias, how in about["aliases"].items() if isinstance(about, dict) else ():
                    known.setdefault(alias, {})[one] = how
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

    def _names(self, index: str, alias: str) -> dict[str, dict[str, Any]]:
        """The names besides `alias` that readers of a generation know."""
        found: dict[str, dict[str, Any]] = self._client.read(path(index, "_alias")).json()[index]["aliases"]
        return {name: how for name, how in found.items() if name != alias and not name.endswith(_WRITE)}

    def published(self, name: str) -> Generation | None:
        """The generation that the alias serves, or None."""
        held = self._holders(name)
        return next((one for one in self.existing(name) if one.index in held), None)

    def drop(self, generation: Generation) -> None:
        """Delete the generation and its documents; not where it is gone, or another index has its name."""
        answer = self._client.read(path(generation.index, "_settings"), allow=(404,))
        if answer.ok and answer.json()[generation.index]["settings"]["index"]["uuid"] == generation.uuid:
            self._client.call("DELETE", path(generation.index), allow=(404,))

    def _holders(self, name: str) -> list[str]:
        """The indexes behind the alias; all are generations of ours."""
        alias = self.alias(name)
        answer = self._client.read(path(alias), allow=(404,))
        found = answer.json() if answer.ok else {}
        for index, about in found.items():
            if index == alias or self._read(name, index, about) is None:
                what = "an index" if index == alias else f"an alias of the index {index}"
                raise HeadraceError(
                    Kind.SINK_REJECTED,
                    f"the name {alias} is taken by {what} that Headrace did not make",
                    "Set a `prefix`, run beside it, and take the name over with `headrace adopt`; or "
                    "remove what holds it.",
                )
        return list(found)

    def _highest(self, name: str) -> int:
        """The highest number under the name, of whoever made the index."""
        query = {"expand_wildcards": "all", "filter_path": "*.settings.index.uuid"}
        target = path(f"{self.alias(name)}_*", query=query)
        answer = self._client.read(target, allow=(404,))
        found = (self._match(name, index) for index in (answer.json() if answer.ok else {}))
        return max((int(match[2]) for match in found if match is not None), default=0)

    def _match(self, name: str, index: str) -> re.Match[str] | None:
        return re.fullmatch(re.escape(self.alias(name)) + r"_([0-9a-f]+)_([0-9]+)", index)

    def _read(self, name: str, index: str, about: dict[str, Any]) -> Generation | None:
        match = self._name(name, index)
        ours = about.get("mappings", {}).get("_meta", {}).get(_OURS)
        if match is None or not ours or ours.get("index") != name:
            return None
        uuid = about["settings"]["index"]["uuid"]
        return Generation(name, index, match[1], int(match[2]), uuid, ours.get("schema", ""))

    def _found(self, name: str) -> dict[str, dict[str, Any]]:
        """What the cluster says of all that may be generations of `name`."""
        target = path(f"{self.alias(name)}_*", query={"expand_wildcards": "all"})
        answer = self._client.read(target, allow=(404,))
        return answer.json() if answer.ok else {}

    def _name(self, name: str, index: str) -> re.Match[str] | None:
        return re.fullmatch(re.escape(self.alias(name)) + r"_([0-9a-f]+)_([0-9]+)", index)

    def _uuid(self, index: str) -> str:
        found = self._client.read(path(index, "_settings")).json()
        uuid = found[index]["settings"]["index"]["uuid"]
        assert isinstance(uuid, str)
        return uuid
