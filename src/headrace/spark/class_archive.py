"""Find the archive of Spark's classes, with which a session starts in half of the time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyspark

from headrace.config.class_archive import ClassArchive, class_archive
from headrace.config.java import find_spark_java
from headrace.errors import HeadraceError
from headrace.spark.settings import JAVA_OPTIONS


def spark_class_archive(environ: Mapping[str, str]) -> ClassArchive | None:
    """Return the archive for Headrace's own sessions; None where there can be none."""
    installed = f"{pyspark.__version__}\n{Path(pyspark.__file__).parent}\n{JAVA_OPTIONS}"
    try:
        return class_archive(find_spark_java(environ), f"spark-{pyspark.__version__}", installed, environ)
    except HeadraceError:  # no Java, which is reported by the session's start, or no cache folder
        return None
