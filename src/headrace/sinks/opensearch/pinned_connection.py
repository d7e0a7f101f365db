"""Trust the authority whose certificate has a given fingerprint.

The server sends the authority's certificate with its own. One with the right fingerprint becomes the only
authority that the connection trusts; whether it issued the server's certificate, and the host's name, are
then verified as always. So a stranger who shows a copy of that certificate gains nothing.
"""

from __future__ import annotations

import hashlib
import socket
import ssl
import sys
from typing import Any

from urllib3.connection import HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import NewConnectionError, SSLError
from urllib3.util.ssl_ import create_urllib3_context


def pinned_pools(fingerprint: str) -> dict[str, type[HTTPConnectionPool]]:
    """Return urllib3's pools for connections that trust one authority.

    Args:
        fingerprint: of the SHA-256 of its certificate, in lower-case hexadecimal.
    """

    class Connection(HTTPSConnection):
        def connect(self) -> None:
            # The first connection only looks at the certificates; nothing is sent over it.
            anchor = _find_anchor(self, fingerprint)
            context = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED)
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # it need not be self-signed
            context.load_verify_locations(cadata=anchor)
            self.ssl_context = context
            super().connect()

    class Pool(HTTPSConnectionPool):
        ConnectionCls = Connection

    return {"http": HTTPConnectionPool, "https": Pool}


def _find_anchor(connection: HTTPSConnection, fingerprint: str) -> bytes:
    """Return the certificate with `fingerprint` among those that the server sends.

    Raises:
        NewConnectionError, SSLError: nothing was sent to the server yet.
    """
    for certificate in _sent_certificates(connection):
        if hashlib.sha256(certificate).hexdigest() == fingerprint:
            return certificate
    missing = "no certificate that the server sends has the ca_fingerprint of the sink"
    raise SSLError(ssl.SSLCertVerificationError(missing))


def _sent_certificates(connection: HTTPSConnection) -> list[bytes]:
    seconds = connection.timeout if isinstance(connection.timeout, int | float) else None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # In this order: ssl refuses CERT_NONE as long as host names are checked.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if connection.cert_file:
        context.load_cert_chain(connection.cert_file, connection.key_file)
    try:
        with (
            socket.create_connection((connection.host, connection.port), seconds) as plain,
            context.wrap_socket(plain, server_hostname=connection.host) as secured,
        ):
            if sys.version_info >= (3, 13):
                return list(secured.get_unverified_chain())
            inner: Any = secured._sslobj  # type: ignore[attr-defined] # noqa: SLF001 - public in 3.13
            return [entry.public_bytes(_DER) for entry in inner.get_unverified_chain() or []]
    except ssl.SSLError as error:
        raise SSLError(error) from error
    except OSError as error:
        raise NewConnectionError(connection, f"{error}") from error


_DER = 2
"""OpenSSL's number for the binary form of a certificate (`_ssl.ENCODING_DER`)."""
