"""Two processes never hold one lease, and a dead one holds none for long."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.sinks.opensearch import Client
from headrace.sinks.opensearch.lease import Holder, Lease, holder_of

ELSEWHERE = replace(Holder.here("s1"), host="elsewhere", machine="another", pid=17)


@pytest.fixture
def prefix(client: Client) -> Iterator[str]:
    one = f"l{uuid.uuid4().hex[:8]}_"
    yield one
    client.call("DELETE", f"/{one}headrace_meta", allow=(404,))


def lease(client: Client, prefix: str, slot: str = "s1", *, beat: float = 0.1, me: Any = None) -> Lease:
    return Lease(client, slot, prefix, ["users"], patience=0.8, beat=beat, me=me)


def test_a_second_process_is_refused_and_told_who_the_first_is(client: Client, prefix: str) -> None:
    """By its slot, and where that is another by its index."""
    with lease(client, prefix):
        for slot, what in (("s1", "the slot 's1'"), ("s2", f"the index {prefix}users")):
            with pytest.raises(HeadraceError, match=what) as refused, lease(client, prefix, slot):
                pass
            assert refused.value.kind is Kind.SLOT_IN_USE
            assert f"pid {os.getpid()}, since " in refused.value.cause
        assert holder_of(client, "s1", prefix) is not None
    with lease(client, prefix, "s2"):
        pass
    assert holder_of(client, "s2", prefix) is None


def test_one_that_is_silent_elsewhere_is_taken_over_after_a_while(client: Client, prefix: str) -> None:
    """And where it was only suspended, it is told when it wakes up."""
    with lease(client, prefix, beat=60.0, me=ELSEWHERE) as silent:
        began = time.monotonic()
        with lease(client, prefix) as mine:
            assert time.monotonic() - began >= 0.8
            silent.renew()
            lost = silent.lost()
            assert lost is not None
            assert lost.kind is Kind.SLOT_IN_USE
            assert mine.lost() is None


def test_one_that_died_on_this_machine_is_taken_over_at_once(client: Client, prefix: str) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        stat = Path(f"/proc/{other.pid}/stat").read_text().rpartition(")")[2].split()
        me = replace(Holder.here("s1"), pid=other.pid, born=stat[19])
        assert not me.gone
        with lease(client, prefix, beat=60.0, me=me):
            other.kill()
            other.wait()
            began = time.monotonic()
            with lease(client, prefix):
                assert time.monotonic() - began < 0.7
