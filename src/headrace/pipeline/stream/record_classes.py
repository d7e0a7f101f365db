"""Record the classes that a run loads: `python -m headrace.pipeline.stream.record_classes`.

It starts a session, runs a query of the same shape as a run's, and ends. That takes half a minute, once for
each Java and PySpark; every later start of Spark is faster (decision 0095).
"""

from __future__ import annotations

import os
import sys

from headrace.errors import HeadraceError
from headrace.pipeline.stream.warm_up import warmed_up
from headrace.spark.class_archive import spark_class_archive
from headrace.spark.session import local_spark

_WRITTEN_WITHIN = 300.0


def record_classes() -> None:
    """Record the archive of Spark's classes; nothing where there is one, or where there can be none.

    Raises:
        HeadraceError: as `local_spark`.
        OSError: the cache folder cannot be written to.
    """
    archive = spark_class_archive(os.environ)
    if archive is None or archive.exists:
        return
    with archive.recording() as option:
        if option is not None:
            with local_spark(java_options=option, end_within=_WRITTEN_WITHIN) as spark, warmed_up(spark):
                pass


if __name__ == "__main__":
    try:
        record_classes()
    except (HeadraceError, OSError) as error:
        sys.exit(f"headrace: Spark's classes are not recorded: {error}")
