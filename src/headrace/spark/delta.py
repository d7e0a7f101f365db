"""Give a Spark session Delta's tables: the jars and settings of ours, what is missing in a user's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import pyspark

from headrace.config.java import find_spark_java
from headrace.embedded.jars import cached_jars, parse_line, verify
from headrace.errors import HeadraceError, Kind

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

_EXTENSIONS, _CATALOG, _JARS = "spark.sql.extensions", "spark.sql.catalog.spark_catalog", "spark.jars"
_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
SETTINGS: Final[Mapping[str, str]] = {
    _EXTENSIONS: _EXTENSION,
    _CATALOG: "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""What a session with Delta's jars is told."""

# Merges move many rows: the second compiler, which a stream of small batches does without, halves their time.
_JAVA = "-XX:+UseParallelGC"
_DEFAULTS: Final[Mapping[str, str]] = {
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": _JAVA,
    "spark.executor.extraJavaOptions": _JAVA,
}

# As of 2026-11-29 there is no Delta for Spark 4.3.
_CHECKSUMS: Final[Mapping[str, str]] = {
    "4.2": "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    "4.1": "75a9400986853c061f5109f012547de2545a5759e5e752e5ef633dabe16a4f10",
    "4.0": "49e899667168b9412f83cbe894ce264107d7b896d6c5e12edca4e216845c1104",
}
PACKAGES: Final[Mapping[str, str]] = {
    minor: f"io.delta:delta-spark_{minor}_2.13:4.4.0" for minor in _CHECKSUMS
}
"""By Spark's version, what `spark.jars.packages` is to name."""
_STORAGE = "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc", "io.delta:delta-storage:4.4.0"


def delta_jars(environ: Mapping[str, str]) -> list[Path]:
    """Return Delta's jars for this PySpark; they are downloaded (10 MB) if they are not in the cache.

    Raises:
        HeadraceError: DEPENDENCY, where there are none for this PySpark; DISK or DOWNLOAD.
    """
    wanted = [parse_line(" ".join(pin)) for pin in _pins()]
    name = f"{wanted[0].artifact}-{wanted[0].version}"
    folder = cached_jars(name, wanted, find_spark_java(environ).executable, environ)
    verify(folder, wanted)
    return [folder / jar.file for jar in wanted]


def with_delta(given: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a session of Headrace's own that has Delta: `given`, if they name its extension.

    Raises:
        HeadraceError: as for `delta_jars`.
    """
    if _EXTENSION in given.get(_EXTENSIONS, ""):
        return dict(given)
    jars = ",".join([*filter(None, [given.get(_JARS)]), *map(str, delta_jars(environ))])
    extensions = ",".join([*filter(None, [given.get(_EXTENSIONS)]), _EXTENSION])
    return {**SETTINGS, **_DEFAULTS, **given, _JARS: jars, _EXTENSIONS: extensions}


def check_delta(session: SparkSession) -> None:
    """Refuse a user's session that cannot write Delta's tables.

    Raises:
        HeadraceError: DEPENDENCY, with the package and the settings that it lacks.
    """
    given = {name: str(session.conf.get(name, "")) for name in SETTINGS}
    if _EXTENSION in given[_EXTENSIONS] and given[_CATALOG]:
        return
    package = PACKAGES.get(_minor(session.version))
    lacks = ", ".join(f"{name}={value}" for name, value in SETTINGS.items())
    raise HeadraceError(
        Kind.DEPENDENCY,
        f'the Spark session (Spark {session.version}) has no Delta, which engine = "spark" needs',
        f"Make it with spark.jars.packages={package}, {lacks}." if package else _none(session.version),
    )


def _pins() -> tuple[tuple[str, str], ...]:
    version = pyspark.__version__
    minor = _minor(version)
    if minor not in PACKAGES:
        raise HeadraceError(
            Kind.DEPENDENCY,
            f'engine = "spark" needs Delta for Spark, and there is none for PySpark {version}',
            _none(version),
        )
    return (_CHECKSUMS[minor], PACKAGES[minor]), _STORAGE


def _none(version: str) -> str:
    known = ", ".join(f"{name} for PySpark {minor}" for minor, name in PACKAGES.items())
    return (
        f"Delta has released {known} (2026-11-29): run pip install 'pyspark=={next(iter(PACKAGES))}.*', or "
        f'write engine = "local", which needs no jar and runs on PySpark {_minor(version)}.'
    )


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
