"""How is a second process kept away from a pipeline's state, and from the indexes that it writes?

The lock in the database keeps two runs of one slot of one database apart. A database that was restored
elsewhere has the same slot, and two slots can have an index of the same name: they meet in the cluster only.
So whoever runs keeps leases in the meta index, one for its slot and one for each index, and renews them.

No clock is compared with another: a lease whose beat does not change while somebody looks lost its holder. On
the holder's own machine nobody has to wait: whether its process lives is to be seen.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from headrace.errors import HeadraceError, Kind, Retry
from headrace.sinks.opensearch import failures
from headrace.sinks.opensearch.client import Client, path
from headrace.sinks.opensearch.endpoint import Endpoint
from headrace.sinks.opensearch.state_document import StateDocument, meta_index

BEAT_SECONDS = 3.0
LOST_SECONDS = 15.0
_LOOK_SECONDS = 0.5
_REQUEST_SECONDS = 4.0
"""A request takes no longer: one that hangs leaves time for another before the lease counts as lost."""
_WRITTEN = (200, 201)
_GONE = {"type": "index_not_found_exception"}


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """Who has a lease.

    Attributes:
        machine: which boot of which machine, and which of its worlds of processes; empty where unknown.
        born: when the process began, as that machine counts; with `pid` nobody else has it.
        since: ISO 8601.
    """

    host: str
    pid: int
    machine: str
    born: str
    since: str
    slot: str

    @classmethod
    def here(cls, slot: str) -> Self:
        """This process."""
        now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        return cls(socket.gethostname(), os.getpid(), _machine(), _born(os.getpid()), now, slot)

    @property
    def gone(self) -> bool:
        """Whether it has ended for certain: it was on this machine and is not there."""
        return bool(self.machine) and self.machine == _machine() and _born(self.pid) != self.born

    def __str__(self) -> str:
        return f"host {self.host}, pid {self.pid}, since {self.since}"


def _machine() -> str:
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    return ""


def _born(pid: int) -> str:
    """When a process of this machine began; empty where there is none, or it has only not been buried."""
    with contextlib.suppress(OSError):
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if state in "ZX" else rest[18]
    return ""


class Lease:
    """The leases of one run, from entering to leaving.

    Args:
        indexes: the logical ones that it writes.
        me: who asks.
        patience: how long a lease must not have changed, so that it is taken over (s).

    Raises:
        HeadraceError: from entering, SLOT_IN_USE with who has one; what the cluster does not bear.
    """

    def __init__(
        self,
        client: Client,
        slot: str,
        prefix: str,
        indexes: Sequence[str],
        *,
        me: LeaseHolder | None = None,
        patience: float = LOST_SECONDS,
        beat: float = BEAT_SECONDS,
    ) -> None:
        self._client = client
        self._index = meta_index(prefix)
        self._me = me or LeaseHolder.here(slot)
        self._owner = uuid.uuid4().hex
        self._patience, self._beat_seconds = patience, beat
        self._quick = Client(_impatient(client.endpoint), read_attempts=1)
        self._found: dict[str, Mapping[str, Any]] = {}
        self._beat = 0
        self._lost: HeadraceError | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="headrace lease", daemon=True)
        names = {slot_lease(slot): f"the slot {slot!r}"}
        names |= {f"{index}.index_lease": f"the index {prefix}{index}" for index in indexes}
        self._leases = {
            identity: (StateDocument(client, self._index, identity, what), what)
            for identity, what in names.items()
        }

    def __enter__(self) -> Self:
        seen: dict[str, tuple[object, float]] = {}
        while held := self._not_ours(seen):
            self._refuse_living(held, seen)
            time.sleep(_LOOK_SECONDS)
        for document, what in self._leases.values():
            try:
                document.save(self._body())
            except HeadraceError as error:
                raise self._taken(document.load(), what, error) from error
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        with contextlib.suppress(HeadraceError):
            ours = {one: found for one, found in self._look().items() if self._is_ours(found)}
            self._send([({"delete": _place(one, found)}, None) for one, found in ours.items()])
        self._quick.close()

    def lost(self) -> HeadraceError | None:
        """Why a lease is somebody else's now; None while all are ours, or nobody can tell."""
        return self._lost

    def _not_ours(self, seen: dict[str, tuple[object, float]]) -> list[tuple[str, Mapping[str, Any]]]:
        """The leases that somebody has who may live; of each is noted since when its beat is the same."""
        held = []
        for identity, (document, _) in self._leases.items():
            found = document.load()
            if found is None or _holder(found).gone:
                continue
            mark = found.get("owner"), found.get("beat")
            before, since = seen.get(identity, (mark, time.monotonic()))
            if before == mark and time.monotonic() - since >= self._patience:
                continue
            seen.setdefault(identity, (mark, since))
            held.append((identity, found))
        return held

    def _refuse_living(
        self, held: list[tuple[str, Mapping[str, Any]]], seen: Mapping[str, tuple[object, float]]
    ) -> None:
        """A beat that has changed since it was seen first has a holder that lives."""
        for identity, found in held:
            if seen[identity][0] != (found.get("owner"), found.get("beat")):
                raise _in_use(self._leases[identity][1], _holder(found))

    def _renew(self) -> None:
        while self._lost is None and not self._ended.wait(self._beat_seconds):
            self.renew()

    def renew(self) -> None:
        """Say in one request that the holder lives; `lost` tells where somebody else has taken over."""
        self._beat += 1
        try:
            found = self._found or self._look()
            self._lost = self._why_lost(found)
            self._found = self._written(found) if self._lost is None else {}
        except HeadraceError as error:
            self._found = {}
            if error.retry is not Retry.BACK_OFF:  # else nobody else reaches the cluster either
                self._lost = error

    def _look(self) -> dict[str, Mapping[str, Any]]:
        """The leases as they are."""
        asked = {"ids": list(self._leases)}
        docs = self._quick.read(path(self._index, "_mget"), asked).json()["docs"]
        if unread := [one["error"] for one in docs if one.get("error", _GONE)["type"] != _GONE["type"]]:
            raise HeadraceError(Kind.SINK_BUSY, f"the index {self._index} cannot be read: {unread[0]}")
        return {one["_id"]: one for one in docs}

    def _why_lost(self, found: Mapping[str, Mapping[str, Any]]) -> HeadraceError | None:
        for identity, (_, what) in self._leases.items():
            one = found[identity]
            if not one.get("found"):
                return HeadraceError(
                    Kind.CONTINUITY,
                    f"somebody deleted the lease of {what} from the index {self._index}",
                    "Start `headrace run` again, and let only one run with this slot.",
                )
            if not self._is_ours(one):
                return _in_use(what, _holder(one["_source"]))
        return None

    def _is_ours(self, found: Mapping[str, Any]) -> bool:
        return bool(found.get("found")) and found["_source"].get("owner") == self._owner

    def _written(self, found: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
        """Write what is ours, and how it is then; nothing, where one has been written in between."""
        body = self._body()
        told = self._send([({"index": _place(one, found[one])}, body) for one in self._leases])
        if any(one["status"] not in _WRITTEN for one in told):
            return {}
        return {one["_id"]: {**one, "found": True, "_source": body} for one in told}

    def _send(self, actions: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]) -> list[Any]:
        """What the cluster answers to each."""
        if not actions:
            return []
        lines = [json.dumps(line) for action in actions for line in action if line is not None]
        body = "".join(f"{line}\n" for line in lines).encode()
        answer = self._quick.exchange("POST", path(self._index, "_bulk"), body, "application/x-ndjson")
        if not answer.ok:
            raise failures.from_status(answer.status, answer.data, answer.place)
        return [next(iter(one.values())) for one in answer.json()["items"]]

    def _taken(self, found: Mapping[str, Any] | None, what: str, error: HeadraceError) -> HeadraceError:
        if error.kind is not Kind.CONTINUITY or found is None:
            return error
        return _in_use(what, _holder(found))

    def _body(self) -> dict[str, Any]:
        return {"holder": asdict(self._me), "owner": self._owner, "beat": self._beat}


def _place(identity: str, found: Mapping[str, Any]) -> dict[str, Any]:
    return {"_id": identity, "if_seq_no": found["_seq_no"], "if_primary_term": found["_primary_term"]}


def _impatient(endpoint: Endpoint) -> Endpoint:
    return dataclasses.replace(
        endpoint,
        timeout=min(endpoint.timeout, _REQUEST_SECONDS),
        connect_timeout=min(endpoint.connect_timeout, _REQUEST_SECONDS / 2),
    )


def slot_lease(slot: str) -> str:
    """The id of a slot's lease."""
    return f"{slot}.lease"


def holder_of(client: Client, slot: str, prefix: str) -> LeaseHolder | None:
    """Who runs with this slot, as far as the cluster knows; None where nobody seems to.

    Raises:
        HeadraceError: SINK_UNREACHABLE, SINK_BUSY, AUTHENTICATION.
    """
    found = client.read(path(meta_index(prefix), "_doc", slot_lease(slot)), allow=(404,)).json()
    if not found.get("found"):
        return None
    holder = _holder(found["_source"])
    return None if holder.gone else holder


def _holder(found: Mapping[str, Any]) -> LeaseHolder:
    try:
        return LeaseHolder(**found["holder"])
    except (KeyError, TypeError):
        return LeaseHolder("unknown", 0, "", "", "unknown", "unknown")


def _in_use(what: str, holder: LeaseHolder) -> HeadraceError:
    return HeadraceError(
        Kind.SLOT_IN_USE,
        f"another Headrace works with {what} ({holder}, slot {holder.slot!r})",
        "Stop it first, or give this deployment a slot and a prefix of its own.",
    )
