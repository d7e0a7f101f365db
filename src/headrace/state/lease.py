"""Leases keep a second process away from a pipeline's state and from the indexes that it writes.

The lock in the database separates two runs of one slot of one database. A restored copy of the database has
the same slot, and two slots can have an index of the same name: only the cluster can tell. So a run holds
leases in the meta index, one for its slot and one for each index, and renews them.

No clocks are compared: a lease has no holder any more if its beat does not change while another process
watches. On the holder's own machine nobody has to wait: the operating system knows whether the process lives.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from headrace.errors import HeadraceError, Kind, Retry, unexpected
from headrace.sinks.opensearch.client import Client, path
from headrace.sinks.opensearch.documents import document
from headrace.state.key import StateKey
from headrace.state.system_index import StateDocument, entries_by_id

BEAT_SECONDS = 3.0
LOST_SECONDS = 15.0
_LOOK_SECONDS = 0.5
# Limit of one request: after one that hangs, there is time for another before the lease counts as lost.
_REQUEST_SECONDS = 4.0
_WRITTEN = (200, 201)
_INDEX_LEASE = ".index_lease"
# The owner of a lease and its beat; another one at each renewal.
_Mark = tuple[object, object]


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """The process that holds a lease.

    Attributes:
        host: its machine's name.
        pid: its process id.
        machine: ids of the boot and of the PID namespace; empty where unknown.
        born: start time of the process, as its machine counts; unique together with `pid`.
        since: ISO 8601.
        slot: its replication slot.
    """

    host: str
    pid: int
    machine: str
    born: str
    since: str
    slot: str

    @classmethod
    def here(cls, slot: str) -> Self:
        """Describe this process."""
        now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        return cls(socket.gethostname(), os.getpid(), _machine(), _born(os.getpid()), now, slot)

    @property
    def is_here(self) -> bool:
        """Whether the process runs, or ran, on this machine, so that this one sees whether it lives."""
        return bool(self.machine) and self.machine == _machine()

    @property
    def gone(self) -> bool:
        """Tell whether the process has certainly ended: it ran on this machine and exists no more."""
        return self.is_here and _born(self.pid) != self.born

    def __str__(self) -> str:
        return f"host {self.host}, pid {self.pid}, since {self.since}"


def _machine() -> str:
    with contextlib.suppress(OSError):
        # A pid means a process only in its namespace, and until the machine starts again.
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    return ""


def _born(pid: int) -> str:
    """Return the start time of a process of this machine; empty where it does not exist or is a zombie."""
    with contextlib.suppress(OSError):
        # The program's name, in parentheses, may have some itself; the start is field 22 of the line.
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        # An id may be of another process by now; with its start time it is unique until the machine restarts.
        return "" if state in "ZX" else rest[18]
    return ""


# The document of a lease, and what it is about.
_LeaseDocument = tuple[StateDocument, str]


class Lease:
    """Holds the leases of one run; a context manager.

    Args:
        client: of the cluster with the meta index.
        key: names the run, with the prefix of the index names in this cluster.
        indexes: the logical indexes that it writes.
        me: the holder; by default this process.
        address: its public address, for who looks for the run; empty for none.
        patience: seconds without a change after which a lease is taken over.
        beat: seconds between two renewals.

    Raises:
        HeadraceError: on entering: SLOT_IN_USE with the present holder; any other failure of the cluster.
    """

    def __init__(
        self,
        client: Client,
        key: StateKey,
        indexes: Sequence[str],
        *,
        me: LeaseHolder | None = None,
        address: str = "",
        patience: float = LOST_SECONDS,
        beat: float = BEAT_SECONDS,
    ) -> None:
        self._client = client
        self._index = key.meta_index
        self._me = me or LeaseHolder.here(key.slot)
        self._address = address
        self._owner = uuid.uuid4().hex
        self._patience, self._beat_seconds = patience, beat
        # One attempt: the next beat is the next try.
        self._quick = Client(client.endpoint.with_timeout(_REQUEST_SECONDS), read_attempts=1, accepted=True)
        self._found: dict[str, Mapping[str, Any]] = {}
        self._seen: dict[str, tuple[_Mark, float]] = {}
        self._renewing = threading.Lock()
        self._beat = 0
        self._lost: HeadraceError | None = None
        self._prefix = key.prefix
        self._slot_lease = {slot_lease(key): str(key)}
        self.choose(indexes)

    def choose(self, indexes: Iterable[str]) -> None:
        """Hold the leases of these indexes from the next entering on, and no others."""
        self._leases = self._documents(self._slot_lease, indexes)

    def __enter__(self) -> Self:
        # It may have been held and lost before: nothing of that counts any more.
        self._lost, self._found = None, {}
        self._take(self._leases)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="headrace lease", daemon=True)
        self._thread.start()
        return self

    def hold(self, indexes: Iterable[str]) -> None:
        """Hold the leases of these indexes too; those that are held stay.

        Raises:
            HeadraceError: as on entering.
        """
        wanted = self._documents({}, indexes)
        added = {identity: lease for identity, lease in wanted.items() if identity not in self._leases}
        self._take(added)
        with self._renewing:
            # Not beside a renewal: it would take the leases of before for all that there are.
            self._leases, self._found = {**self._leases, **added}, {}

    def release_others(self, indexes: Iterable[str]) -> None:
        """Give up the leases of all indexes but these; nothing writes the others any more.

        One that cannot be deleted now is free when it has not been renewed for some seconds.
        """
        kept = {slot for slot in self._leases if not slot.endswith(_INDEX_LEASE)} | {
            *self._documents({}, indexes)
        }
        with self._renewing:
            released = self._leases.keys() - kept
            self._leases = {identity: lease for identity, lease in self._leases.items() if identity in kept}
            self._found = {}
        if released:
            self._delete(released)

    def _delete(self, identities: Iterable[str]) -> None:
        """Delete those leases that are this run's, as far as the cluster answers."""
        with contextlib.suppress(HeadraceError):
            found = self._read_leases(identities)
            self._send(
                [({"delete": _place(lease)}, None) for lease in found.values() if self._is_ours(lease)]
            )

    def _documents(self, names: Mapping[str, str], indexes: Iterable[str]) -> dict[str, _LeaseDocument]:
        every = {
            **names,
            **{f"{index}{_INDEX_LEASE}": f"the index {self._prefix}{index}" for index in indexes},
        }
        return {
            identity: (StateDocument(self._client, self._index, identity, what), what)
            for identity, what in every.items()
        }

    def _take(self, leases: Mapping[str, _LeaseDocument]) -> None:
        """Take leases once their former holders have ended."""
        first: dict[str, _Mark] = {}
        while others := self._held_elsewhere(leases):
            for identity, holder in others.items():
                mark, _ = self._seen[identity]
                if first.setdefault(identity, mark) != mark:  # it is renewed: its holder lives
                    raise _in_use(leases[identity][1], holder)
            time.sleep(_LOOK_SECONDS)
        for lease, what in leases.values():
            try:
                lease.save(self._body())
            except HeadraceError as error:
                raise self._conflict(lease.load(), what, error) from error

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        # After the last renewal, which would write again what is deleted.
        self._delete(self._leases)
        self._quick.close()

    def lost(self) -> HeadraceError | None:
        """Return why a lease was lost; None while all are held, or it is not known."""
        return self._lost

    def slot_holder(self) -> LeaseHolder | None:
        """Return the other process that holds the slot's lease and may live; called again and again.

        All leases are watched, so that a takeover need not wait again. Another deployment may hold that of an
        index.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY, AUTHENTICATION.
        """
        others = self._held_elsewhere(self._leases)
        return next((others[identity] for identity in self._slot_lease if identity in others), None)

    def _held_elsewhere(self, leases: Mapping[str, _LeaseDocument]) -> dict[str, LeaseHolder]:
        """Read the leases whose holders may live, and note since when each beat is unchanged."""
        others = {}
        for identity, (lease, _) in leases.items():
            found = lease.load()
            if found is None or (holder := _holder(found)).gone:
                continue
            mark = found.get("owner"), found.get("beat")
            if identity not in self._seen or self._seen[identity][0] != mark:
                # By this process's clock: those of two machines may differ.
                self._seen[identity] = mark, time.monotonic()
            if time.monotonic() - self._seen[identity][1] < self._patience:
                others[identity] = holder
        return others

    def _renew(self) -> None:
        while self._lost is None and not self._ended.wait(self._beat_seconds):
            self.renew()

    def renew(self) -> None:
        """Renew all leases in one request; `lost` returns the reason where another process has taken over."""
        with self._renewing:
            self._renew_all()

    def _renew_all(self) -> None:
        self._beat += 1
        try:
            # The answer to a write has the versions that the next one replaces: a renewal is one request.
            found = self._found or self._read_leases(self._leases)
            self._lost = self._why_lost(found)
            self._found = self._write(found) if self._lost is None else {}
        except Exception as failure:  # noqa: BLE001 - a thread that ends tells nobody that nothing is renewed
            self._found = {}
            error = unexpected("the leases cannot be renewed", failure)
            if error.retry is not Retry.BACK_OFF:  # else no other process reaches the cluster either
                self._lost = error

    def _read_leases(self, identities: Iterable[str]) -> dict[str, Mapping[str, Any]]:
        """Read those of these leases that exist."""
        entries = entries_by_id(self._quick, self._index, list(identities))
        return {entry["_id"]: entry for entry in entries}

    def _why_lost(self, found: Mapping[str, Mapping[str, Any]]) -> HeadraceError | None:
        for identity, (_, what) in self._leases.items():
            if identity not in found:
                return HeadraceError(
                    Kind.CONTINUITY,
                    f"the lease of {what} was deleted from the index {self._index}",
                    "Start `headrace run` again, and let only one run with this slot.",
                )
            if not self._is_ours(found[identity]):
                return _in_use(what, _holder(found[identity]["_source"]))
        return None

    def _is_ours(self, found: Mapping[str, Any]) -> bool:
        return bool(found["_source"].get("owner") == self._owner)

    def _write(self, found: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
        """Write the leases and return them as stored; returns nothing where one was changed in between."""
        body = self._body()
        answers = self._send([({"index": _place(found[id_])}, body) for id_ in self._leases])
        if any(answer["status"] not in _WRITTEN for answer in answers):
            return {}
        return {answer["_id"]: {**answer, "_source": body} for answer in answers}

    def _send(self, actions: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]) -> list[Any]:
        """Send a bulk request; returns the answer to each action."""
        if not actions:
            return []
        lines = [json.dumps(line) for action in actions for line in action if line is not None]
        body = "".join(f"{line}\n" for line in lines).encode()
        answer = self._quick.exchange("POST", path(self._index, "_bulk"), body, "application/x-ndjson")
        if not answer.ok:
            raise self._quick.failure(answer)
        return [next(iter(item.values())) for item in answer.json("items")]

    def _conflict(self, found: Mapping[str, Any] | None, what: str, error: HeadraceError) -> HeadraceError:
        if error.kind is not Kind.CONTINUITY or found is None:
            return error
        return _in_use(what, _holder(found))

    def _body(self) -> dict[str, Any]:
        return {
            "holder": asdict(self._me),
            "owner": self._owner,
            # Another one at each renewal: who waits sees by it that the holder lives.
            "beat": self._beat,
            "address": self._address,
        }


def _place(found: Mapping[str, Any]) -> dict[str, Any]:
    return {"_id": found["_id"], "if_seq_no": found["_seq_no"], "if_primary_term": found["_primary_term"]}


def slot_lease(key: StateKey) -> str:
    """Return the id of the lease of a run or of its secondary sink."""
    return f"{key.id}.lease"


@dataclass(frozen=True, slots=True)
class SlotLease:
    """The lease of a pipeline's slot, as another process reads it.

    Attributes:
        holder: the process that holds it and has not certainly ended; None where there is none. One of
            another machine that died a moment ago is still named.
        address: the holder's public address, HOST:PORT, as this machine reaches it; empty where it has none.
        mark: another one at each renewal.
    """

    holder: LeaseHolder | None = None
    address: str = ""
    mark: tuple[object, object] = (None, None)


def read_slot_lease(client: Client, key: StateKey) -> SlotLease:
    """Read who runs the pipeline with this slot, as far as the cluster knows.

    Raises:
        HeadraceError: SINK_UNREACHABLE, SINK_BUSY, AUTHENTICATION.
    """
    lease = document(client, key.meta_index, slot_lease(key))
    if lease is None or (holder := _holder(lease)).gone:
        return SlotLease()
    address = _reachable(str(lease.get("address") or ""), holder)
    return SlotLease(holder, address, (lease.get("owner"), lease.get("beat")))


def find_running(client: Client, key: StateKey, *, patience: float = LOST_SECONDS) -> LeaseHolder | None:
    """Return the process that runs the pipeline with this slot, or None where there is none.

    Whether somebody reads the slot says nothing: a run that waits for its cluster, or begins its query again,
    reads none. A run of another machine lives if it renews its lease within `patience` seconds, which it does
    every few seconds; one that died leaves its lease behind.

    Raises:
        HeadraceError: SINK_UNREACHABLE, SINK_BUSY, AUTHENTICATION.
    """
    first = found = read_slot_lease(client, key)
    end = time.monotonic() + patience
    # Only a renewal shows that a process of another machine lives; one of this machine was looked up.
    while found.holder is not None and not found.holder.is_here and found.mark == first.mark:
        if time.monotonic() > end:
            return None
        time.sleep(_LOOK_SECONDS)
        found = read_slot_lease(client, key)
    return found.holder


def find_others(client: Client, key: StateKey, indexes: Iterable[str]) -> list[HeadraceError]:
    """Return an error for each index that the run of another slot writes.

    Raises:
        HeadraceError: SINK_UNREACHABLE, SINK_BUSY, AUTHENTICATION.
    """
    about = {f"{index}{_INDEX_LEASE}": f"the index {key.prefix}{index}" for index in indexes}
    holders = {
        lease["_id"]: _holder(lease["_source"]) for lease in entries_by_id(client, key.meta_index, [*about])
    }
    return [
        _in_use(about[identity], holder)
        for identity, holder in holders.items()
        if holder.slot != key.slot and not holder.gone
    ]


_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - replaced, not listened on


def _reachable(address: str, holder: LeaseHolder) -> str:
    """Return an address with a host to connect to, where it listens on every interface."""
    host, _, port = address.rpartition(":")
    if host not in _EVERYWHERE:
        return address
    return f"{_EVERYWHERE[host] if holder.is_here else holder.host}:{port}"


def _holder(found: Mapping[str, Any]) -> LeaseHolder:
    try:
        return LeaseHolder(**found["holder"])
    except (KeyError, TypeError):
        return LeaseHolder("unknown", 0, "", "", "unknown", "unknown")


def _in_use(what: str, holder: LeaseHolder) -> HeadraceError:
    return HeadraceError(
        Kind.SLOT_IN_USE,
        f"another Headrace works with {what} ({holder}, slot {holder.slot!r})",
        "Stop it first, or give this deployment a `slot` and a `prefix` of its own.",
    )
