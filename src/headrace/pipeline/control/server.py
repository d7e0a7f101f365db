"""Listen on the private address of a running pipeline."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from headrace.config.deployment import Deployment
from headrace.errors import HeadraceError, Kind
from headrace.pipeline.control.application import ControlPages
from headrace.pipeline.control.guard import Guard
from headrace.pipeline.control.tokens import read_tokens
from headrace.status.protection import allows_host, is_loopback
from headrace.status.serving import Certificate, HttpServer

if TYPE_CHECKING:
    from headrace.pipeline.running import RunningPipeline


class ControlServer(HttpServer):
    """Takes orders for a pipeline between enter and exit.

    Args:
        running: the pipeline.
        deployment: has the tokens, the names of the address and its certificate.
        address: `HOST:PORT`, the only address to listen on; port 0 takes a free one.

    Raises:
        HeadraceError: CONFIG: there is no token, one cannot be used, or the certificate cannot.
            PASSWORD_COMMAND. USAGE for an address that is invalid.
    """

    def __init__(self, running: RunningPipeline, deployment: Deployment, address: str) -> None:
        self._report = running.board.report
        self._allowed = deployment.control.allowed_hosts
        pages = ControlPages(running).application()
        guard = Guard(pages, read_tokens(deployment), self._allows, running.board)
        certificate = _certificate(deployment)
        self._is_readable = certificate is None and not is_loopback(address)
        super().__init__(guard, address, "private", certificate)

    def start(self) -> None:
        """Listen; say so where others can read what is sent.

        Raises:
            HeadraceError: PORT_IN_USE, USAGE.
        """
        super().start()
        if self._is_readable:
            self._report.warning(
                f"other machines reach the private address {self.address}, which has no certificate: "
                "whoever reads the network reads its tokens"
            )

    def _allows(self, host: str) -> bool:
        return allows_host(host, self.address, (*self._allowed, self.named))


def _certificate(deployment: Deployment) -> Certificate | None:
    """Return the certificate's files, once it is known that they can be loaded.

    Raises:
        HeadraceError: CONFIG.
    """
    control = deployment.control
    if control.certificate_file is None or control.key_file is None:
        return None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(control.certificate_file, control.key_file)
    except OSError as error:  # ssl.SSLError is one
        reason = getattr(error, "reason", None) or error.strerror or type(error).__name__
        raise HeadraceError(
            Kind.CONFIG,
            f"{deployment.file}: the private address cannot use {control.certificate_file} with "
            f"{control.key_file}: {reason}",
            "Both must be PEM files that this user can read; the key must be the certificate's.",
        ) from error
    return Certificate(control.certificate_file, control.key_file)
