"""How does a column of PostgreSQL's text become a typed Arrow column?"""

from __future__ import annotations

import pyarrow as pa

from headrace.errors import HeadraceError, Kind
from headrace.model.types import Form, ValueType
from headrace.model.values import moments, nested, scalars
from headrace.model.values.conversion import Converted, UnreadableError, not_read

Texts = pa.StringArray | pa.BinaryArray | pa.ChunkedArray


def convert(kind: ValueType, texts: Texts, column: str) -> Converted:
    """The values that `texts` stand for, in order; NULL stays NULL.

    Args:
        kind: the column's type.
        texts: each value as a session with the settings of `headrace.postgres.session.PINNED` prints it.
        column: what the column is called in messages (`public.orders.total`).

    Returns:
        The values, and the positions of those that the Arrow type cannot hold: they are NULL in `values`.

    Raises:
        HeadraceError: VALUE, a text is not what PostgreSQL prints for this type. The text is not in the message.
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


def _read(kind: ValueType, texts: pa.StringArray) -> Converted:  # noqa: PLR0911, one for each form
    match kind.form:
        case Form.BOOLEAN:
            return scalars.booleans(texts)
        case Form.INTEGER | Form.FLOAT:
            return scalars.numbers(texts, kind.arrow)
        case Form.DECIMAL:
            return scalars.decimals(texts, kind.arrow)
        case Form.MONEY:
            return scalars.numbers(scalars.amounts(texts, kind.arrow.scale), kind.arrow)
        case Form.BYTES:
            return scalars.octets(texts)
        case Form.DATE:
            return moments.dates(texts)
        case Form.TIMESTAMP:
            return moments.timestamps(texts, kind.arrow)
        case Form.MAP:
            return nested.maps(kind, texts)
        case Form.ARRAY | Form.VECTOR:
            return nested.arrays(kind, texts, _read)
        case Form.RANGE:
            return nested.ranges(kind, texts, _read)
        case Form.MULTIRANGE:
            return nested.multiranges(kind, texts, _read)
        case Form.COMPOSITE:
            return nested.composites(kind, texts, _read)
        case Form.TEXT:
            return Converted(texts)
