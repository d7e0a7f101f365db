"""Listen on one address and answer HTTP from a daemon thread, beside the pipeline."""

from __future__ import annotations

import errno
import re
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import uvicorn
from starlette.types import ASGIApp

from headrace.errors import HeadraceError, Kind
from headrace.status.connections import BoundedConnection
from headrace.status.protection import SafeHeaders

_ADDRESS = re.compile(r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<host>[^\s:\[\]]+)):(?P<port>\d{1,5})")
_LAST_PORT = 65535
# A start takes long where the machine is busy, or was suspended meanwhile.
_START_SECONDS, _STOP_SECONDS = 60.0, 5.0


@dataclass(frozen=True, slots=True)
class Certificate:
    """The PEM files of a server's certificate, with its chain, and of its key."""

    certificate_file: Path
    key_file: Path


class HttpServer:
    """Serves an application between `start` and `stop`.

    Args:
        application: what answers; its lifespan is entered while it is served.
        address: `HOST:PORT`, the only address to listen on; port 0 takes a free one.
        name: what the address is called in messages, for example `status`.
        certificate: serve HTTPS with it; None serves HTTP.

    Attributes:
        address: `HOST:PORT`, with the real port once the server has started.

    Raises:
        HeadraceError: USAGE for an address that is invalid, or that is not this machine's.
    """

    def __init__(
        self, application: ASGIApp, address: str, name: str, certificate: Certificate | None = None
    ) -> None:
        self._family, self._host, self._port = _parse(address)
        self._name = name
        config = uvicorn.Config(
            SafeHeaders(application),
            http=BoundedConnection,
            ws="none",
            lifespan="on",
            loop="asyncio",
            # uvicorn would set up logging for the whole process.
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,  # else a client could say that it is another one
            server_header=False,
            # A page that watches events would keep the server up until it is closed.
            timeout_graceful_shutdown=1,
            ssl_certfile=None if certificate is None else certificate.certificate_file,
            ssl_keyfile=None if certificate is None else certificate.key_file,
        )
        self._server = uvicorn.Server(config)
        self._thread: threading.Thread | None = None
        self.address = address

    def start(self) -> None:
        """Listen; return when requests are answered.

        Raises:
            HeadraceError: PORT_IN_USE, or USAGE as for the class.
        """
        listener = self._listen()
        host, port = listener.getsockname()[:2]
        self.address = f"[{host}]:{port}" if self._family is socket.AF_INET6 else f"{host}:{port}"
        self._thread = threading.Thread(
            target=self._server.run,
            kwargs={"sockets": [listener]},
            name=f"headrace {self._name}",
            # A server that hangs at its end must not keep the process.
            daemon=True,
        )
        self._thread.start()
        deadline = time.monotonic() + _START_SECONDS
        # uvicorn says by this flag alone that it answers.
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                listener.close()
                raise HeadraceError(
                    Kind.INTERNAL, f"the {self._name} server at {self.address} does not start"
                )
            time.sleep(0.005)

    def stop(self) -> None:
        """Answer open requests and close the port; idempotent."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(timeout=_STOP_SECONDS)
            self._thread = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def named(self) -> str:
        """The address with the host as it was given, which may be a name."""
        host = f"[{self._host}]" if self._family is socket.AF_INET6 else self._host
        return f"{host}:{self.address.rpartition(':')[2]}"

    def _listen(self) -> socket.socket:
        try:
            return socket.create_server((self._host, self._port), family=self._family, backlog=64)
        except OSError as error:
            raise _refusal(error, f"the {self._name} address {self.address}") from error


def _refusal(error: OSError, place: str) -> HeadraceError:
    if error.errno == errno.EADDRINUSE:
        return HeadraceError(
            Kind.PORT_IN_USE, f"{place} is taken by another process", "Choose another, or port 0."
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return HeadraceError(
            Kind.USAGE, f"{place} cannot be listened on by this user", "Choose a port from 1024 on."
        )
    return HeadraceError(
        Kind.USAGE,
        f"{place} does not belong to this machine: {error.strerror or error}",
        "Use 127.0.0.1:PORT, or 0.0.0.0:PORT for every interface.",
    )


def _parse(address: str) -> tuple[socket.AddressFamily, str, int]:
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match["port"]) > _LAST_PORT:
        raise HeadraceError(
            Kind.USAGE, f"{address!r} is not an address to listen on", "Write HOST:PORT, like 127.0.0.1:9464."
        )
    family = socket.AF_INET if match["six"] is None else socket.AF_INET6
    return family, match["six"] or match["host"], int(match["port"])
