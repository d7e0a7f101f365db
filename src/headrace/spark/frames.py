"""What does one do with rows of changes in a batch? Functions over DataFrames; they work in every session.

Nothing here touches a Spark context, the JVM or a setting, so Spark Connect is served too.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

_LAST = "__headrace_last"
_EMPTIED = "__headrace_emptied"


def latest_per_key(batch: DataFrame, keys: Sequence[str], *, prefix: str = "_") -> DataFrame:
    """The last change of each key in a batch of `envelope=rows`, for a MERGE.

    Args:
        batch: of one table, with the columns that the source gives.
        keys: the columns that tell rows apart.
        prefix: the source's `metadataPrefix`.

    Returns:
        The same columns: for each key its newest row, of type `insert`, `update_postimage` or `delete`. Where
        the table was emptied, the `truncate` row too, and of the others only what came after it: delete
        everything in the target first, then merge the rest.

    Raises:
        ValueError: `keys` is empty.
    """
    if not keys:
        raise ValueError("name the columns of the key")
    kind = f.col(f"{prefix}change_type")
    place = f.struct(f.col(f"{prefix}commit_lsn"), f.col(f"{prefix}commit_seq"))
    emptied = batch.where(kind == "truncate").agg(f.max(place).alias(_EMPTIED))
    newest_first = Window.partitionBy(kind == "truncate", *(f.col(f"`{key}`") for key in keys)).orderBy(
        place.desc(),
        kind
        == "delete",  # a key may become one that Spark takes for the same, as 0.0 and -0.0: the row lives
    )
    return (
        batch.where(kind != "update_preimage")
        .crossJoin(f.broadcast(emptied))
        .where(f.col(_EMPTIED).isNull() | (place >= f.col(_EMPTIED)))
        .withColumn(_LAST, f.row_number().over(newest_first))
        .where(f.col(_LAST) == 1)
        .drop(_LAST, _EMPTIED)
    )
