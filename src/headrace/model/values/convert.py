"""How does a column of PostgreSQL's text become a typed Arrow column?"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from headrace.errors import HeadraceError, Kind
from headrace.model.types import ArrowForm
from headrace.model.value_type import ValueType
from headrace.model.values import moments, nested, scalars
from headrace.model.values.conversion import Converted, UnreadableError, not_read

Texts: TypeAlias = pa.StringArray | pa.BinaryArray | pa.ChunkedArray


def convert(kind: ValueType, texts: Texts, column: str) -> Converted:
    """The values that `texts` stand for, in order; NULL stays NULL.

    Args:
        kind: the column's type.
        texts: each value as a session with the settings of `headrace.postgres.session.PINNED` prints it.
        column: what the column is called in messages (`public.orders.total`).

    Returns:
        The values, and the positions of those that the Arrow type cannot hold: they are NULL in `values`.

    Raises:
        HeadraceError: VALUE, a text is not what PostgreSQL prints for this type; it is not in the message.
    """
    try:
        return _read(kind, whole(texts))
    except UnreadableError as error:
        raise not_read(column, kind.name, error) from error


def convert_all(kind: ValueType, texts: Texts, column: str) -> pa.Array:
    """As `convert`, where every value has to fit.

    Raises:
        HeadraceError: VALUE, also where a value does not fit.
    """
    converted = convert(kind, texts, column)
    if len(converted.unfit):
        raise HeadraceError(
            Kind.VALUE,
            f"{len(converted.unfit)} of {len(texts)} values of {column} ({kind.name}) "
            f"do not fit into Spark's {kind.spark}",
            "docs/types.md lists which; read the column as text.",
        )
    return converted.values


def convert_fitting(kind: ValueType, texts: Texts, column: str) -> Converted:
    """As `convert`, where a text that no value of the type has counts as one that does not fit.

    That is what comes of a column whose type was changed after it was looked up.
    """
    try:
        return convert(kind, texts, column)
    except HeadraceError:
        pass
    distinct = whole(texts).dictionary_encode()
    found = [_one(kind, text, column) for text in distinct.dictionary]
    values = pa.concat_arrays(
        [pa.nulls(1, kind.arrow), *(pa.nulls(1, kind.arrow) if one is None else one for one in found)]
    )
    place = distinct.indices.fill_null(-1).to_numpy() + 1
    unfit = np.array([False, *(one is None for one in found)])
    return Converted(values.take(pa.array(place)), np.flatnonzero(unfit[place]))


def _one(kind: ValueType, text: pa.StringScalar, column: str) -> pa.Array | None:
    try:
        converted = convert(kind, pa.array([text.as_py()], pa.string()), column)
    except HeadraceError:
        return None
    return None if len(converted.unfit) else converted.values


def rescued(
    columns: Mapping[str, tuple[Texts, Converted]],
    rows: int,
    besides: Mapping[int, Mapping[str, str | None]] = MappingProxyType({}),
) -> pa.StringArray:
    """What did not fit, for a column beside the typed ones: `{"price": "NaN"}`; NULL where all of a row did.

    Args:
        columns: each column's texts and what became of them, by its name.
        rows: how many values each has.
        besides: by row, the texts of what has no column.
    """
    lost: dict[int, dict[str, str | None]] = {at: dict(texts) for at, texts in besides.items()}
    for name, (texts, converted) in columns.items():
        for at in converted.unfit.tolist():
            lost.setdefault(at, {})[name] = texts[at].as_py()
    if not lost:
        return pa.nulls(rows, pa.string())
    found = [json.dumps(lost[at], ensure_ascii=False) if at in lost else None for at in range(rows)]
    return pa.array(found, pa.string())


def whole(texts: Texts) -> pa.StringArray:
    """One array of strings.

    Raises:
        UnreadableError: the text is no UTF-8.
    """
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    if pa.types.is_string(texts.type):
        return texts
    try:
        return texts.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise UnreadableError("it is no UTF-8") from error


def _read(kind: ValueType, texts: pa.StringArray) -> Converted:
    nest = _NESTED.get(kind.form)
    return _SCALARS[kind.form](kind, texts) if nest is None else nest(kind, texts, _read)


_SCALARS: dict[ArrowForm, Callable[[ValueType, pa.StringArray], Converted]] = {
    ArrowForm.BOOLEAN: lambda _, texts: scalars.booleans(texts),
    ArrowForm.INTEGER: lambda kind, texts: scalars.numbers(texts, kind.arrow),
    ArrowForm.FLOAT: lambda kind, texts: scalars.numbers(texts, kind.arrow),
    ArrowForm.DECIMAL: lambda kind, texts: scalars.decimals(texts, kind.arrow),
    ArrowForm.MONEY: lambda kind, texts: scalars.numbers(
        scalars.amounts(texts, kind.arrow.scale), kind.arrow
    ),
    ArrowForm.BYTES: lambda _, texts: scalars.octets(texts),
    ArrowForm.DATE: lambda _, texts: moments.dates(texts),
    ArrowForm.TIMESTAMP: lambda kind, texts: moments.timestamps(texts, kind.arrow),
    ArrowForm.MAP: nested.maps,
    ArrowForm.TEXT: lambda _, texts: Converted(texts),
}
_NESTED: dict[ArrowForm, Callable[[ValueType, pa.StringArray, nested.Convert], Converted]] = {
    ArrowForm.ARRAY: nested.arrays,
    ArrowForm.VECTOR: nested.arrays,
    ArrowForm.RANGE: nested.ranges,
    ArrowForm.MULTIRANGE: nested.multiranges,
    ArrowForm.COMPOSITE: nested.composites,
}
