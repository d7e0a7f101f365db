"""Convert a column of PostgreSQL's text to JSON, the same as the database creates in documents.

Numbers keep their digits, because they stay text. NaN and the infinities, for which JSON has no number, are
strings, as in PostgreSQL's own `to_json`; in documents they are null, because a search index rejects them
(decision 0020).
"""

from __future__ import annotations

import base64
import json

import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.types import ArrowForm, Json
from headrace.model.value_type import ValueType
from headrace.model.values import nested, scalars
from headrace.model.values.conversion import UnreadableError, mask_of, not_read
from headrace.model.values.convert import Texts, whole
from headrace.model.values.texts import leaves, map_pairs, render_tree

_TO_ESCAPE = r'["\\\x00-\x1f]'


def json_form(kind: ValueType, texts: Texts, column: str) -> pa.StringArray:
    """Return the JSON text of each value; NULL where it is NULL.

    Args:
        kind: the column's type.
        texts: each value as PostgreSQL prints it.
        column: the column's name for messages.

    Raises:
        HeadraceError: VALUE where a text is not what PostgreSQL prints for this type.
    """
    try:
        return _json(kind, whole(texts), in_composite=False)
    except UnreadableError as error:
        raise not_read(column, kind.name, error) from error


def _json(kind: ValueType, texts: pa.StringArray, *, in_composite: bool) -> pa.StringArray:
    # to_json of a row has fewer forms than a column of the same type.
    if in_composite and kind.json_in_composite is Json.STRING:
        return _printed(texts)
    match kind.form:
        case ArrowForm.ARRAY | ArrowForm.VECTOR:
            return _arrays(kind, texts, in_composite=in_composite)
        case ArrowForm.COMPOSITE:
            return _composites(kind, texts)
        case ArrowForm.MAP:
            maps = [None if text is None else dict(map_pairs(text)) for text in texts.to_pylist()]
            return pa.array([None if pairs is None else _dumps(pairs) for pairs in maps], pa.string())
    return _scalar(kind, texts)


def _scalar(kind: ValueType, texts: pa.StringArray) -> pa.StringArray:
    match kind.json:
        case Json.BOOLEAN:
            return pc.if_else(pc.equal(texts, "t"), "true", "false")
        case Json.NUMBER:
            plain = scalars.amounts(texts, kind.arrow.scale) if kind.form is ArrowForm.MONEY else texts
            # numeric knows NaN and the infinities, JSON does not.
            special = pc.is_in(texts, scalars.NOT_FINITE)
            return pc.if_else(special, _quoted(texts), plain) if pc.any(special).as_py() else plain
        case Json.MOMENT:
            return _quoted(_moments(kind, texts))
        case Json.BASE64:
            return _base64(texts)
        case Json.ITSELF:
            # Outside its strings JSON may hold line breaks, which would end a line of newline-delimited JSON.
            return pc.replace_substring_regex(texts, r"[\r\n]", " ")
    return _printed(texts)


def _moments(kind: ValueType, texts: pa.StringArray) -> pa.StringArray:
    """Convert PostgreSQL's ISO style to ISO 8601, with a T before the hour and minutes in the zone."""
    if kind.form is ArrowForm.DATE:
        return texts
    if pc.all(pc.equal(pc.utf8_slice_codeunits(texts, 10, 11), " "), min_count=0).as_py():
        texts = pc.binary_replace_slice(texts, 10, 11, "T")
    else:
        texts = pc.replace_substring_regex(texts, r"^([0-9]+-\d\d-\d\d) ", r"\1T")
    if kind.arrow.tz is None:
        return texts
    if pc.all(pc.ends_with(texts, "+00"), min_count=0).as_py():
        return pc.binary_join_element_wise(texts, ":00", "")
    return pc.replace_substring_regex(texts, r"([+-]\d\d)( BC)?$", r"\1:00\2")


def _base64(texts: pa.StringArray) -> pa.StringArray:
    octets = scalars.octets(texts).values.to_pylist()
    return pa.array(
        [None if value is None else f'"{base64.b64encode(value).decode()}"' for value in octets], pa.string()
    )


def _printed(texts: pa.StringArray) -> pa.StringArray:
    """Return texts as JSON strings, escaped as PostgreSQL does."""
    if not pc.any(pc.match_substring_regex(texts, _TO_ESCAPE)).as_py():
        return _quoted(texts)
    return pa.array([None if text is None else _dumps(text) for text in texts.to_pylist()], pa.string())


def _quoted(texts: pa.StringArray) -> pa.StringArray:
    return pc.binary_join_element_wise('"', texts, '"', "")


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _arrays(kind: ValueType, texts: pa.StringArray, *, in_composite: bool) -> pa.StringArray:
    if (plain := nested.plain_lists(kind, texts)) is not None:
        texts_of_elements = _json(kind.parts[0], plain.flatten(), in_composite=in_composite).fill_null("null")
        counts = pc.fill_null(pc.list_value_length(plain), 0).to_numpy()
        lists = nested.lists(texts_of_elements, counts, mask_of(texts.is_null()))
        return pc.binary_join_element_wise("[", pc.binary_join(lists, ","), "]", "")
    trees = nested.trees_of(kind, texts)
    elements = pa.array([leaf for tree in trees for leaf in leaves(tree or [])], pa.string())
    values = iter(_json(kind.parts[0], elements, in_composite=in_composite).to_pylist())

    def next_leaf() -> str:
        return next(values) or "null"

    return pa.array([None if tree is None else render_tree(tree, next_leaf) for tree in trees], pa.string())


def _composites(kind: ValueType, texts: pa.StringArray) -> pa.StringArray:
    rows = nested.fields_of(kind, texts)
    columns = [
        _json(part, pa.array([row[number] for row in rows], pa.string()), in_composite=True).to_pylist()
        for number, part in enumerate(kind.parts)
    ]
    names = [_dumps(name) for name in kind.names]
    objects = [
        "{" + ",".join(f"{name}:{value or 'null'}" for name, value in zip(names, values, strict=True)) + "}"
        for values in zip(*columns, strict=True)
    ]
    known = texts.is_valid().to_pylist()
    return pa.array(
        [text if is_known else None for text, is_known in zip(objects, known, strict=True)], pa.string()
    )
