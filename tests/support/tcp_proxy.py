"""Break the network between two programs that both live."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER of no time: closing sends RST


class TcpProxy:
    """Forwards TCP from a free loopback port to `host:port`; a context manager, usable from any thread.

    `cut` resets every connection, `refuse` the later ones too; `freeze` forwards nothing more and closes
    nothing (half-open: neither side is told, later ones are accepted and hear nothing); `mute` does so to the
    connections that there are, and forwards later ones, as a box that has forgotten what it carried;
    `lead_to` changes the server behind it; `slow` delays and throttles each direction; `resume` forwards
    again at full speed what was held back.

    Attributes:
        port: where it listens, on 127.0.0.1.
        accepted: how many connections came so far.
        forwarded: how many bytes went through, both directions together.
    """

    def __init__(self, host: str, port: int) -> None:
        self.port = 0
        self.accepted = 0
        self.forwarded = 0
        self._target = (host, port)
        self._delay, self._rate = 0.0, float("inf")
        self._refusing = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._gates: set[asyncio.Event] = set()
        self._loop = asyncio.new_event_loop()
        self._open = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    @classmethod
    def before(cls, url: str) -> Self:
        """A proxy to the server of `url`, which names one host and its port."""
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        return cls(parts.hostname, parts.port)

    def url(self, for_url: str) -> str:
        """The same URL, through this proxy."""
        parts = urlsplit(for_url)
        user, at, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{user}{at}127.0.0.1:{self.port}").geturl()

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """Reset (RST) every connection, on both sides; later ones are forwarded."""
        self._do(self._reset)

    def refuse(self) -> None:
        """Reset every connection, and every later one when it comes."""
        self._refusing = True
        self.cut()

    def lead_to(self, url: str, *, cut: bool = True) -> None:
        """Lead later connections to the server of `url`, as a name in DNS may; reset those that are open."""
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._target = (parts.hostname, parts.port)
        if cut:
            self.cut()

    def freeze(self) -> None:
        """Forward nothing more, silently."""
        self._do(self._open.clear)

    def mute(self) -> None:
        """Forward nothing more, silently, of the connections that there are."""

        def close() -> None:
            for gate in self._gates:
                gate.clear()

        self._do(close)

    def slow(self, *, delay: float = 0.0, rate: float = float("inf")) -> None:
        """Hold each piece back for `delay` seconds, and let `rate` bytes a second through, each way."""
        self._delay, self._rate = delay, rate

    def resume(self) -> None:
        """Forward everything again, at full speed."""
        self._refusing = False
        self.slow()

        def open_all() -> None:
            for gate in (self._open, *self._gates):
                gate.set()

        self._do(open_all)

    def _do(self, action: Callable[[], object]) -> None:
        """Run `action` on the loop's thread and wait until it is done."""

        async def run() -> None:
            action()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    async def _listen(self) -> None:
        self._open.set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        self._reset()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    def _reset(self) -> None:
        for writer in tuple(self._writers):
            self._drop(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # `_close` cancels it, of which Python 3.11's own callback would print a trace.
        with contextlib.suppress(asyncio.CancelledError):
            await self._forward(reader, writer)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.current_task()
        assert task is not None
        self._pumps.add(task)
        task.add_done_callback(self._pumps.discard)
        self._writers.add(writer)
        try:
            await self._open.wait()
            if self._refusing:
                raise ConnectionRefusedError
            back, forth = await asyncio.open_connection(*self._target)
        except OSError:
            self._drop(writer)
            return
        self._writers.add(forth)
        gate = asyncio.Event()
        gate.set()
        self._gates.add(gate)
        try:
            await asyncio.gather(self._pump(reader, forth, gate), self._pump(back, writer, gate))
        finally:
            self._gates.discard(gate)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event
    ) -> None:
        """Forward one direction, its end included, until either side is gone."""
        try:
            while data := await reader.read(1 << 16):
                await self._open.wait()
                await gate.wait()
                if pause := self._delay + len(data) / self._rate:
                    await asyncio.sleep(pause)
                self.forwarded += len(data)
                writer.write(data)
                await writer.drain()
            await self._open.wait()
            await gate.wait()
        except OSError:
            self._drop(writer)
            return
        writer.close()
        self._writers.discard(writer)

    def _drop(self, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        writer.transport.abort()
        self._writers.discard(writer)
