"""Convert texts of simple types to Arrow values, without a Python object for each."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.values.conversion import Converted, UnreadableError, cast

NOT_FINITE = pa.array(["NaN", "Infinity", "-Infinity"])
_NO_DIGIT = 255
_HEX = np.full(256, _NO_DIGIT, np.uint8)
_HEX[list(b"0123456789abcdef")] = np.arange(16)
_PREFIX = 2  # the length of \x


def numbers(texts: pa.StringArray, arrow: pa.DataType) -> Converted:
    """Convert integers and floats; `NaN`, `Infinity` and `-Infinity` are floats."""
    return Converted(cast(texts, arrow))


def booleans(texts: pa.StringArray) -> Converted:
    """Convert `t` and `f` to booleans."""
    values = pc.equal(texts, "t")
    if pc.any(pc.and_not(pc.not_equal(texts, "f"), values)).as_py():
        raise UnreadableError("it is neither t nor f")
    return Converted(values)


def decimals(texts: pa.StringArray, arrow: pa.DataType) -> Converted:
    """Convert `numeric` with declared digits; of what PostgreSQL allows there, only NaN does not fit."""
    special = pc.is_in(texts, NOT_FINITE)
    if not pc.any(special).as_py():
        return Converted(cast(texts, arrow))
    values = cast(pc.if_else(special, None, texts), arrow)
    return Converted(values, np.flatnonzero(special.to_numpy(zero_copy_only=False)))


def amounts(texts: pa.StringArray, scale: int) -> pa.StringArray:
    """Convert `money` to a plain number's text, with any signs and separators of `lc_monetary`."""
    decimals = f"[^0-9][0-9]{{{scale}}}" if scale else ""
    amount = pc.match_substring_regex(texts, f"^[^0-9]*[0-9]([^0-9]?[0-9])*{decimals}[^0-9]*$")
    if not pc.all(amount, min_count=0).as_py():
        raise UnreadableError(f"it is no amount with {scale} decimals")
    digits = pc.utf8_lpad(pc.replace_substring_regex(texts, r"[^0-9]+", ""), scale + 1, "0")
    if scale:
        whole = pc.utf8_slice_codeunits(digits, 0, -scale)
        digits = pc.binary_join_element_wise(whole, pc.utf8_slice_codeunits(digits, -scale), ".")
    negative = pc.match_substring_regex(texts, "[-\u2212(]")
    return pc.binary_join_element_wise(pc.if_else(negative, "-", ""), digits, "")


def octets(texts: pa.StringArray) -> Converted:
    r"""Convert `bytea` from its hex format, `\x00ff`."""
    filled = pc.fill_null(texts, "\\x")
    _, offsets, data = filled.buffers()
    ends = np.frombuffer(offsets, np.int32)[filled.offset : filled.offset + len(filled) + 1]
    text = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]] if len(filled) else np.zeros(0, np.uint8)
    starts, lengths = ends[:-1] - ends[:1], np.diff(ends)
    if (lengths < _PREFIX).any() or (lengths % 2).any():
        raise UnreadableError("it is not in the hex form")
    keep = np.ones(len(text), np.bool_)
    keep[starts] = keep[starts + 1] = False
    digits = _HEX[text[keep]]
    if (digits == _NO_DIGIT).any() or not (text[starts] == ord("\\")).all():
        raise UnreadableError("it is not in the hex form")
    content = digits[0::2] << 4 | digits[1::2]
    bounds = np.zeros(len(filled) + 1, np.int32)
    np.cumsum(lengths // 2 - 1, out=bounds[1:])
    buffers = [texts.is_valid().buffers()[1], pa.py_buffer(bounds), pa.py_buffer(content)]
    return Converted(pa.Array.from_buffers(pa.binary(), len(filled), buffers))
