"""Find out whether anything answers at a server's address, below the protocol of PostgreSQL."""

from __future__ import annotations

import socket

from headrace.postgres.address import parse_address

_SECONDS = 2.0
_PORT = "5432"


def is_reachable(url: str) -> bool:
    """Return whether the first host of `url` answers: it accepts a TCP connection, or refuses it.

    A Unix socket counts as reachable.
    """
    parameters = parse_address(url).parameters
    host = (parameters.get("hostaddr") or parameters.get("host") or "/").split(",")[0]
    port = (parameters.get("port") or _PORT).split(",")[0]
    if host.startswith(("/", "@")):
        return True
    try:
        socket.create_connection((host, int(port)), _SECONDS).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return True
