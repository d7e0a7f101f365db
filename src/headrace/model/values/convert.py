"""Convert a column of PostgreSQL's text to a typed Arrow column."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from headrace.errors import HeadraceError
from headrace.model.types import ArrowForm
from headrace.model.value_type import ValueType
from headrace.model.values import moments, nested, scalars
from headrace.model.values.conversion import Converted, UnreadableError, not_read

Texts: TypeAlias = pa.StringArray | pa.BinaryArray | pa.ChunkedArray


def convert(kind: ValueType, texts: Texts, column: str) -> Converted:
    """Convert texts to values; NULL stays NULL, and values that do not fit become NULL.

    Args:
        kind: the column's type.
        texts: each value as a session with the settings of `headrace.postgres.connection.PINNED` prints it.
        column: the column's name for messages (`public.orders.total`).

    Returns:
        The values, and the positions of those that the Arrow type cannot hold.

    Raises:
        HeadraceError: VALUE where a text is not what PostgreSQL prints for this type; the message does not
            hold the text.
    """
    try:
        return _read(kind, whole(texts))
    except UnreadableError as error:
        raise not_read(column, kind.name, error) from error


def convert_all(kind: ValueType, texts: Texts, column: str) -> pa.Array:
    """Convert texts to values, all of which must fit.

    Raises:
        HeadraceError: VALUE, also where a value does not fit.
    """
    converted = convert(kind, texts, column)
    if len(converted.unfit):
        raise kind.unfit(len(converted.unfit), len(texts), column)
    return converted.values


def convert_fitting(kind: ValueType, texts: Texts, column: str) -> Converted:
    """Convert texts to values; an invalid text counts as a value that does not fit.

    Such texts come from a column whose type was changed after it was read from the catalog.
    """
    try:
        return convert(kind, texts, column)
    except HeadraceError:
        pass
    distinct = whole(texts).dictionary_encode()
    converted = [_convert_single(kind, text, column) for text in distinct.dictionary]
    nothing = pa.nulls(1, kind.arrow)
    values = pa.concat_arrays([nothing, *(nothing if value is None else value for value in converted)])
    place = distinct.indices.fill_null(-1).to_numpy() + 1
    unfit = np.array([False, *(value is None for value in converted)])
    return Converted(values.take(pa.array(place)), np.flatnonzero(unfit[place]))


def _convert_single(kind: ValueType, text: pa.StringScalar, column: str) -> pa.Array | None:
    try:
        converted = convert(kind, pa.array([text.as_py()], pa.string()), column)
    except HeadraceError:
        return None
    return None if len(converted.unfit) else converted.values


def rescued(
    columns: Mapping[str, tuple[Texts, Converted]],
    rows: int,
    unplanned: Mapping[int, Mapping[str, str | None]] = MappingProxyType({}),
) -> pa.StringArray:
    """Return the values of each row that did not fit, as JSON: `{"price": "NaN"}`; NULL where all fit.

    Args:
        columns: each column's texts and converted values, by its name.
        rows: the number of rows.
        unplanned: the texts of columns without a typed column, by the row's index.
    """
    lost: dict[int, dict[str, str | None]] = {at: dict(texts) for at, texts in unplanned.items()}
    for name, (texts, converted) in columns.items():
        for at in converted.unfit.tolist():
            lost.setdefault(at, {})[name] = texts[at].as_py()
    if not lost:
        return pa.nulls(rows, pa.string())
    objects = [json.dumps(lost[at], ensure_ascii=False) if at in lost else None for at in range(rows)]
    return pa.array(objects, pa.string())


def whole(texts: Texts) -> pa.StringArray:
    """Return texts as one array of strings.

    Raises:
        UnreadableError: the text is not UTF-8.
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
