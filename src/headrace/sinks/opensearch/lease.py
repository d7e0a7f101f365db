"""How is a second process kept away from a pipeline's state, and from the indexes that it writes?

The lock in the database keeps two runs of one slot of one database apart. A database that was restored
elsewhere has the same slot, and two slots can have an index of the same name: they meet in the cluster only.
So whoever runs keeps leases in the meta index, one for its slot and one for each index, and renews them.

No clock is compared with another: a lease whose beat does not change while somebody looks lost its holder. On
the holder's own machine nobody has to wait: whether its process lives is to be seen.
"""

from __future__ import annotations

import contextlib
import datetime as dt
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
from headrace.sinks.opensearch.client import Client, path
from headrace.sinks.opensearch.kept import KeptDocument, meta_index

BEAT_SECONDS = 3.0
LOST_SECONDS = 15.0
_LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Holder:
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
        me: Holder | None = None,
        patience: float = LOST_SECONDS,
        beat: float = BEAT_SECONDS,
    ) -> None:
        self._client = client
        self._index = meta_index(prefix)
        self._me = me or Holder.here(slot)
        self._owner = uuid.uuid4().hex
        self._patience, self._beat_seconds = patience, beat
        self._beat = 0
        self._lost: HeadraceError | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="headrace lease", daemon=True)
        names = {slot_lease(slot): f"the slot {slot!r}"}
        names |= {f"{index}.index_lease": f"the index {prefix}{index}" for index in indexes}
        self._leases = {
            identity: (KeptDocument(client, self._index, identity, what), what)
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
        for identity in self._leases:
            with contextlib.suppress(HeadraceError):
                found = self._client.read(path(self._index, "_doc", identity), allow=(404,)).json()
                if found.get("found") and found["_source"].get("owner") == self._owner:
                    self._client.call("DELETE", path(self._index, "_doc", identity), allow=(404,))

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
        """Say once that the holder lives; `lost` tells where somebody else has taken over."""
        self._beat += 1
        for document, what in self._leases.values():
            try:
                document.save(self._body())
            except HeadraceError as error:
                if error.retry is Retry.BACK_OFF:  # nobody else reaches the cluster either
                    continue
                with contextlib.suppress(HeadraceError):
                    self._lost = self._taken(document.load(), what, error)

    def _taken(self, found: Mapping[str, Any] | None, what: str, error: HeadraceError) -> HeadraceError:
        if error.kind is not Kind.CONTINUITY or found is None:
            return error
        return _in_use(what, _holder(found))

    def _body(self) -> dict[str, Any]:
        return {"holder": asdict(self._me), "owner": self._owner, "beat": self._beat}


def slot_lease(slot: str) -> str:
    """The id of a slot's lease."""
    return f"{slot}.lease"


def holder_of(client: Client, slot: str, prefix: str) -> Holder | None:
    """Who runs with this slot, as far as the cluster knows; None where nobody seems to.

    Raises:
        HeadraceError: SINK_UNREACHABLE, SINK_BUSY, AUTHENTICATION.
    """
    found = client.read(path(meta_index(prefix), "_doc", slot_lease(slot)), allow=(404,)).json()
    if not found.get("found"):
        return None
    holder = _holder(found["_source"])
    return None if holder.gone else holder


def _holder(found: Mapping[str, Any]) -> Holder:
    try:
        return Holder(**found["holder"])
    except (KeyError, TypeError):
        return Holder("unknown", 0, "", "", "unknown", "unknown")


def _in_use(what: str, holder: Holder) -> HeadraceError:
    return HeadraceError(
        Kind.SLOT_IN_USE,
        f"another Headrace works with {what} ({holder}, slot {holder.slot!r})",
        "Stop it first, or give this deployment a slot and a prefix of its own.",
    )
