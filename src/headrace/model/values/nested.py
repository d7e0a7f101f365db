"""Convert arrays, ranges, composite types and hstore to Arrow values.

Each text is split into parts; the parts of all rows together are then converted as one column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.types import ArrowForm
from headrace.model.value_type import ValueType
from headrace.model.values.conversion import Converted, Positions, mask_of, no_positions
from headrace.model.values.texts import (
    RangeText,
    Tree,
    array_tree,
    composite_texts,
    depth,
    leaves,
    map_pairs,
    multirange_texts,
    range_text,
)

Convert = Callable[[ValueType, pa.StringArray], Converted]
"""The conversion of any type, for the parts."""
_PLAIN = r'^\{[^{}"\\]*\}$'
_Mask = np.typing.NDArray[np.bool_]


def trees_of(kind: ValueType, texts: pa.StringArray) -> list[Tree | None]:
    """Parse the elements of each array; None for NULL."""
    return [None if text is None else array_tree(text, kind.delimiter) for text in texts.to_pylist()]


def arrays(kind: ValueType, texts: pa.StringArray, convert: Convert) -> Converted:
    """Convert to lists, nested once for each declared dimension; other numbers of dimensions do not fit."""
    # Without quotes Arrow splits a whole column at once, and no Python object is made for a value.
    if kind.dimensions == 1 and (plain := plain_lists(kind, texts)) is not None:
        elements = convert(kind.parts[0], plain.flatten())
        counts, missing = pc.fill_null(pc.list_value_length(plain), 0).to_numpy(), mask_of(texts.is_null())
        missing[_owners(counts, elements.unfit)] = True
        values = lists(elements.values, counts, missing)
        return Converted(values.cast(kind.arrow), np.unique(_owners(counts, elements.unfit)))
    return _deep_arrays(kind, trees_of(kind, texts), convert)


def plain_lists(kind: ValueType, texts: pa.StringArray) -> pa.ListArray | None:
    """Split arrays with one dimension and without quotes; None where any array is different."""
    vector = kind.form is ArrowForm.VECTOR
    if not vector and not pc.all(pc.match_substring_regex(texts, _PLAIN), min_count=0).as_py():
        return None
    inner = texts if vector and kind.delimiter == " " else pc.utf8_slice_codeunits(texts, 1, -1)
    split = pc.split_pattern(inner, kind.delimiter)
    empty = pc.fill_null(pc.equal(inner, ""), fill_value=False)
    if pc.any(empty).as_py():
        split = pc.if_else(empty, pa.scalar([], split.type), split)
    elements = split.flatten()
    elements = pc.if_else(pc.equal(elements, "NULL"), None, elements)
    counts = pc.fill_null(pc.list_value_length(split), 0).to_numpy()
    return lists(elements, counts, mask_of(texts.is_null()))


def _deep_arrays(kind: ValueType, trees: Sequence[Tree | None], convert: Convert) -> Converted:
    missing = np.array([tree is None for tree in trees], np.bool_)
    # PostgreSQL does not hold a column to its declared dimensions: `int[]` may have values of two.
    fits = [tree is not None and depth(tree) in (0, kind.dimensions) for tree in trees]
    known = [tree if fit and tree is not None else [] for tree, fit in zip(trees, fits, strict=True)]
    counts = np.array([sum(1 for _ in leaves(tree)) for tree in known], np.int64)
    elements = convert(kind.parts[0], _strings([leaf for tree in known for leaf in leaves(tree)]))
    unfit = ~missing & ~np.array(fits, np.bool_)
    unfit[_owners(counts, elements.unfit)] = True
    values = _nest(elements.values, known, kind.dimensions, missing | unfit)
    return Converted(values.cast(kind.arrow), np.flatnonzero(unfit))


def _nest(values: pa.Array, trees: Sequence[Tree], dimensions: int, missing: _Mask) -> pa.ListArray:
    """Build lists of lists of the leaves, the innermost first; only the outermost may be NULL."""
    if dimensions > 1:
        inner = [below for tree in trees for below in tree if isinstance(below, list)]
        values = _nest(values, inner, dimensions - 1, np.zeros(len(inner), np.bool_))
    return lists(values, [len(tree) for tree in trees], missing)


def maps(kind: ValueType, texts: pa.StringArray) -> Converted:
    """Convert hstore to maps from text to text or NULL."""
    return Converted(
        pa.array([None if text is None else map_pairs(text) for text in texts.to_pylist()], kind.arrow)
    )


def composites(kind: ValueType, texts: pa.StringArray, convert: Convert) -> Converted:
    """Convert to structs; a value with a field that does not fit does not fit."""
    rows = fields_of(kind, texts)
    missing = texts.is_null().to_numpy(zero_copy_only=False)
    parts = [convert(part, _strings([row[number] for row in rows])) for number, part in enumerate(kind.parts)]
    return _struct(kind.arrow, [part.values for part in parts], missing, [part.unfit for part in parts])


def fields_of(kind: ValueType, texts: pa.StringArray) -> list[list[str | None]]:
    """Return the fields' texts of each value; NULLs for NULL."""
    count = len(kind.parts)
    nothing: list[str | None] = [None] * count
    return [nothing if text is None else composite_texts(text, count) for text in texts.to_pylist()]


def ranges(kind: ValueType, texts: pa.StringArray, convert: Convert) -> Converted:
    """Convert to structs of bounds; a NULL bound is infinite, unless the range is empty."""
    return _ranges(kind, [None if text is None else range_text(text) for text in texts.to_pylist()], convert)


def multiranges(kind: ValueType, texts: pa.StringArray, convert: Convert) -> Converted:
    """Convert to lists of ranges, in order."""
    multis = [None if text is None else multirange_texts(text) for text in texts.to_pylist()]
    missing = np.array([multi is None for multi in multis], np.bool_)
    counts = [len(multi or ()) for multi in multis]
    parts = _ranges(kind.parts[0], [part for multi in multis for part in multi or ()], convert)
    unfit = np.unique(_owners(np.array(counts, np.int64), parts.unfit))
    missing[unfit] = True
    return Converted(lists(parts.values, counts, missing).cast(kind.arrow), unfit)


def _ranges(kind: ValueType, parts: Sequence[RangeText | None], convert: Convert) -> Converted:
    lower, upper = (
        convert(kind.parts[0], _strings([None if part is None else getattr(part, side) for part in parts]))
        for side in ("lower", "upper")
    )
    flags = [
        pa.array([part is not None and getattr(part, name) for part in parts], pa.bool_())
        for name in ("lower_inc", "upper_inc", "empty")
    ]
    missing = np.array([part is None for part in parts], np.bool_)
    return _struct(kind.arrow, [lower.values, upper.values, *flags], missing, [lower.unfit, upper.unfit])


def _struct(
    arrow: pa.StructType, children: Sequence[pa.Array], missing: _Mask, unfits: Sequence[Positions]
) -> Converted:
    unfit = np.unique(np.concatenate([no_positions(), *unfits]))
    missing = missing.copy()
    missing[unfit] = True
    return Converted(
        pa.StructArray.from_arrays(list(children), fields=list(arrow), mask=pa.array(missing)), unfit
    )


def lists(values: pa.Array, counts: Sequence[int] | Positions, mask: _Mask) -> pa.ListArray:
    """Build lists of `counts` values each; NULL where `mask` is set."""
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=pa.array(mask))


def _owners(counts: Positions, parts: Positions) -> Positions:
    """Return the row of each of `parts`, which are positions among the parts of all rows."""
    owners: Positions = np.searchsorted(np.cumsum(counts), parts, side="right")
    return owners


def _strings(texts: Sequence[str | None]) -> pa.StringArray:
    return pa.array(texts, pa.string())
