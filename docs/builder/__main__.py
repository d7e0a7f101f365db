"""Build the site of the documentation and serve it on this machine: `make docs`.

It needs no network: fonts are the reader's, scripts and the search index lie beside the pages. A link that
leads nowhere, also to a section, ends the build.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

from builder import llms
from builder.stage import DOCS, GENERATED, ROOT, BrokenLinkError, stage

_HOST, _PORT = "127.0.0.1", 8000


class QuietHandler(SimpleHTTPRequestHandler):
    """Serve files, and print no line for each."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - named by the base class
        """Print nothing."""


def main() -> int:
    """Write the generated pages, or build the site and serve it."""
    parser = argparse.ArgumentParser(
        prog="make docs", description="Build the documentation and serve it on loopback."
    )
    parser.add_argument("--build", action="store_true", help="only build")
    parser.add_argument("--write", action="store_true", help="only write the generated pages of docs/ anew")
    parser.add_argument(
        "--port",
        type=int,
        default=_PORT,
        help="the port on 127.0.0.1 (default: %(default)s, else a free one)",
    )
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "build/docs", help="where (default: build/docs)"
    )
    arguments = parser.parse_args()
    if arguments.write:
        for source, page in GENERATED.items():
            (ROOT / source).write_text(page())
        return 0
    if find_spec("zensical") is None:
        print(
            "docs: Zensical is not installed here; `make docs` does that, or: pip install -e '.[docs]'",
            file=sys.stderr,
        )
        return 1
    if not build(arguments.folder):
        return 1
    if not arguments.build:
        serve(arguments.folder / "site", arguments.port)
    return 0


def build(folder: Path) -> bool:
    """Build the site into `folder/site`; say what is wrong, and return whether nothing is."""
    try:
        stage(folder / "pages")
    except BrokenLinkError as error:
        print(f"docs: {error}", file=sys.stderr)
        return False
    configuration = folder / "zensical.toml"
    configuration.write_text(_configuration(folder / "pages"))
    command = [
        sys.executable,
        "-m",
        "zensical",
        "build",
        "--strict",
        "--clean",
        "--config-file",
        str(configuration),
    ]
    finished = subprocess.run(command, check=False, capture_output=True, text=True)
    if finished.returncode == 0:
        llms.write(folder / "pages", folder / "site", configuration.read_text())
        print(f"docs: built {folder / 'site/index.html'}")
    else:
        said = finished.stdout + finished.stderr
        print(said.partition("Traceback (most recent call last)")[0], file=sys.stderr)
    return finished.returncode == 0


def serve(site: Path, port: int) -> None:
    """Serve the site on loopback until Ctrl-C."""
    handler = partial(QuietHandler, directory=str(site))
    try:
        server = ThreadingHTTPServer((_HOST, port), handler)
    except OSError:
        server = ThreadingHTTPServer((_HOST, 0), handler)
    with server:
        print(f"docs: http://{_HOST}:{server.server_address[1]}/ (Ctrl-C ends it)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()


def _configuration(pages: Path) -> str:
    """Return Zensical's configuration, with the errors and decisions in the navigation."""
    text = (DOCS / "builder/zensical.toml").read_text()
    for name in ("errors", "decisions"):
        files = sorted((pages / name).glob("*.md"), key=lambda file: (file.stem != "index", file.stem))
        text = text.replace(f"@{name}@", "\n".join(f'      "{name}/{file.name}",' for file in files))
    return text


if __name__ == "__main__":
    sys.exit(main())
