"""An S3 server on this machine, which can fail as object stores do; a process of its own.

Clients hold the interpreter's lock while they wait, so it cannot be a thread of theirs.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import urllib3

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
_BUCKET = "lakes"
_FAULTS = "/faults/"
_COMMIT = re.compile(r"/_delta_log/|/v\d+\.metadata\.json$")


class ObjectStore:
    """A running server with one bucket.

    Attributes:
        url: of the bucket.
        environ: the variables that its clients need.
    """

    def __init__(self, address: str) -> None:
        self.url = f"s3://{_BUCKET}"
        self._address = address
        self.environ = {
            "AWS_ENDPOINT_URL": address,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_REGION": "us-east-1",
        }
        self.put(f"/{_BUCKET}")

    def fail(self, fault: str) -> None:
        """Fail from now on: "half" of all requests, the answer of the "next-commit", or "nothing"."""
        self.put(f"{_FAULTS}{fault}")

    def put(self, path: str) -> None:
        """Send a request with the method PUT."""
        assert urllib3.request("PUT", f"{self._address}{path}", retries=5).status == 200


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Run a server until the block is left."""
    words = [sys.executable, __file__]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield ObjectStore(process.stdout.readline().strip())
        finally:
            process.kill()


class _FailingStore:
    """The server, which loses requests or answers as it is told."""

    def __init__(self, application: Callable[[Environ, StartResponse], Iterable[bytes]]) -> None:
        self._application = application
        self._fault = "nothing"
        self._luck = random.Random(7)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if path.startswith(_FAULTS):
            self._fault = path.removeprefix(_FAULTS)
            start_response("200 OK", [("Content-Length", "0")])
            return [b""]
        if self._fault == "half" and self._luck.random() < 0.5:
            return self._refuse(start_response)
        if self._fault == "next-commit" and method == "PUT" and _COMMIT.search(path):
            self._fault = "nothing"
            b"".join(self._application(environ, lambda *_: lambda _: None))
            return self._refuse(start_response)
        return self._application(environ, start_response)

    def _refuse(self, start_response: StartResponse) -> Iterable[bytes]:
        start_response("503 Slow Down", [("Content-Length", "0")])
        return [b""]


def _serve() -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app  # noqa: PLC0415
    from werkzeug.serving import make_server  # noqa: PLC0415

    application = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, _FailingStore(application), threaded=True)
    sys.stdout.write(f"http://127.0.0.1:{server.port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    _serve()
