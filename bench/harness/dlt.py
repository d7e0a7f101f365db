"""Measure the peer dlt on the same table, where its package can be had.

The package comes from the index that pip knows into an environment of its own, once. Of its backends
connectorx is the fastest: rows become columns outside Python, over as many connections as it is told.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import venv
from pathlib import Path

VERSION = "1.31.0"
_PACKAGES = (f"dlt[deltalake]=={VERSION}", "sqlalchemy>=2", "psycopg[binary]", "connectorx>=0.4", "pandas")
_PROGRAM = """
import sys
from time import perf_counter
import dlt
from dlt.sources.sql_database import sql_table

url, folder, connections = sys.argv[1:]
begin = perf_counter()
orders = sql_table(
    credentials=url, table="orders", schema="public", backend="connectorx", write_disposition="replace",
    reflection_level="full_with_precision",
    backend_kwargs={"conn": url, "partition_on": "id", "partition_num": int(connections)},
)
orders.apply_hints(table_format="delta")
pipeline = dlt.pipeline("bench", destination=dlt.destinations.filesystem(folder), dataset_name="lake")
pipeline.run(orders).raise_on_failed_jobs()
print(perf_counter() - begin)
"""


def load(url: str, connections: int) -> float | None:
    """Return the seconds that it takes for `orders` to a Delta table; None where it is not here."""
    python = _install()
    if python is None:
        print(f"dlt {VERSION} is left out: its packages are not here")
        return None
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        environment = {**os.environ, "DLT_DATA_DIR": folder, "RUNTIME__DLTHUB_TELEMETRY": "false"}
        environment.pop("PYTHONPATH", None)
        words = [str(python), "-c", _PROGRAM, url, f"file://{folder}/lake", str(connections)]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return float(done.stdout.split()[-1])


def _install() -> Path | None:
    """Return its Python, installed where it is not; None where that fails."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "headrace" / f"dlt-{VERSION}"
    python, ready = folder / "bin" / "python", folder / "installed"
    if not ready.exists():
        venv.create(folder, with_pip=True)
        install = [str(python), "-m", "pip", "install", "--quiet", *_PACKAGES]
        if subprocess.run(install, check=False, capture_output=True).returncode:
            return None
        ready.touch()
    return python
