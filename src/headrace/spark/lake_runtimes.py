"""Give a Spark session what writes a lake's tables: the jars and settings of Delta, and of Iceberg."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyspark

from headrace.config.java import find_spark_java
from headrace.embedded.jars import cached_jars, parse_line, verify
from headrace.errors import HeadraceError, Kind

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

_EXTENSIONS, _JARS, _PACKAGES = "spark.sql.extensions", "spark.jars", "spark.jars.packages"
# Merges move many rows: the second compiler, which a stream of small batches does without, halves their time.
_JAVA = "-XX:+UseParallelGC"
_DEFAULTS: Final[Mapping[str, str]] = {
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": _JAVA,
    "spark.executor.extraJavaOptions": _JAVA,
}


@dataclass(frozen=True, slots=True)
class LakeRuntime:
    """What writes one format's tables in a Spark session.

    Attributes:
        name: the format's.
        marker: what the extensions, jars or packages of a session that has it contain.
        pins: by Spark's version, the SHA-256 and the name of each jar.
        settings: what a session with the jars is told.
    """

    name: str
    marker: str
    pins: Mapping[str, tuple[tuple[str, str], ...]]
    settings: Mapping[str, str] = field(default_factory=dict)

    def packages(self, version: str) -> str | None:
        """Return what `spark.jars.packages` is to name for a version of Spark; None: there is nothing."""
        pins = self.pins.get(_minor(version))
        return None if pins is None else ",".join(name for _, name in pins)

    def jars(self, environ: Mapping[str, str]) -> list[Path]:
        """Return the jars for this PySpark; they are downloaded if they are not in the cache.

        Raises:
            HeadraceError: DEPENDENCY, where there are none for this PySpark; DISK or DOWNLOAD.
        """
        pins = self.pins.get(_minor(pyspark.__version__))
        if pins is None:
            raise self._lacking(pyspark.__version__)
        wanted = [parse_line(" ".join(pin)) for pin in pins]
        name = f"{wanted[0].artifact}-{wanted[0].version}"
        folder = cached_jars(name, wanted, find_spark_java(environ).executable, environ)
        verify(folder, wanted)
        return [folder / jar.file for jar in wanted]

    def with_settings(self, given: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
        """Return the settings of a session of Headrace's own that has the runtime: `given`, if they name it.

        Raises:
            HeadraceError: as for `jars`.
        """
        if self._is_named(given):
            return dict(given)
        settings = {**self.settings, **_DEFAULTS, **given}
        settings[_JARS] = _joined(given.get(_JARS), *map(str, self.jars(environ)))
        if _EXTENSIONS in self.settings:
            settings[_EXTENSIONS] = _joined(given.get(_EXTENSIONS), self.settings[_EXTENSIONS])
        return settings

    def _is_named(self, given: Mapping[str, str]) -> bool:
        """Tell whether a session's settings have the runtime."""
        return any(self.marker in given.get(name, "") for name in (_EXTENSIONS, _JARS, _PACKAGES))

    def check(self, session: SparkSession) -> None:
        """Refuse a user's session without the runtime's settings.

        Raises:
            HeadraceError: DEPENDENCY, with the package and the settings that it lacks.
        """
        given = {name: str(session.conf.get(name, "")) for name in self.settings}
        if not (self._is_named(given) and all(given.values())):
            raise self.missing(session, self.settings)

    def missing(self, session: SparkSession, settings: Mapping[str, str]) -> HeadraceError:
        """Return the error of a session that cannot write the format's tables.

        Args:
            session: the session.
            settings: what it is to be made with, beside the packages.
        """
        version = session.version
        packages = self.packages(version)
        if packages is None:
            return self._lacking(version)
        lacks = ", ".join(f"{name}={value}" for name, value in {_PACKAGES: packages, **settings}.items())
        return HeadraceError(
            Kind.DEPENDENCY,
            f'the Spark session (Spark {version}) has no {self.name}, which engine = "spark" needs',
            f"Make it with {lacks}.",
        )

    def _lacking(self, version: str) -> HeadraceError:
        known = ", ".join(f"{pins[0][1]} for PySpark {minor}" for minor, pins in self.pins.items())
        return HeadraceError(
            Kind.DEPENDENCY,
            f'engine = "spark" needs {self.name} for Spark, and there is none for PySpark {version}',
            f"{self.name} has released {known} (2026-11-29): run pip install "
            f"'pyspark=={next(iter(self.pins))}.*', or write engine = \"local\", which needs no jar and runs "
            f"on PySpark {_minor(version)}.",
        )


# As of 2026-11-29 there is no Delta for Spark 4.3, and no Iceberg for Spark 4.2.
_DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_DELTA_STORAGE = (
    "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
    "io.delta:delta-storage:4.4.0",
)
DELTA: Final = LakeRuntime(
    "Delta",
    _DELTA_EXTENSION,
    {
        minor: ((checksum, f"io.delta:delta-spark_{minor}_2.13:4.4.0"), _DELTA_STORAGE)
        for minor, checksum in {
            "4.2": "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
            "4.1": "75a9400986853c061f5109f012547de2545a5759e5e752e5ef633dabe16a4f10",
            "4.0": "49e899667168b9412f83cbe894ce264107d7b896d6c5e12edca4e216845c1104",
        }.items()
    },
    {
        _EXTENSIONS: _DELTA_EXTENSION,
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
)
# A folder's catalog is a file of SQLite.
_SQLITE = (
    "a3f53a2aa15ae9425a9e793bbe9c8e5288febeb4b65ef5c1a4e80d4c2045cf08",
    "org.xerial:sqlite-jdbc:3.50.3.0",
)
ICEBERG: Final = LakeRuntime(
    "Iceberg",
    "iceberg-spark-runtime",
    {
        minor: ((checksum, f"org.apache.iceberg:iceberg-spark-runtime-{minor}_2.13:{version}"), _SQLITE)
        for minor, version, checksum in (
            ("4.1", "1.12.0", "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82"),
            ("4.0", "1.11.0", "63c3b812549dc232c1920865ff42436df8604a9bbacd693930985c06bd97e6dc"),
        )
    },
)


def _joined(*parts: str | None) -> str:
    return ",".join(filter(None, parts))


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
