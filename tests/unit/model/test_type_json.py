"""Is a type that was written down the same when it is read?"""

from __future__ import annotations

import json

import pytest

from headrace.model.types import TYPES, ArrowForm
from headrace.model.value_type import (
    Attribute,
    DatabaseType,
    ValueType,
    resolve,
    type_from_json,
    type_to_json,
)

_BASE = {
    number: DatabaseType(number, "pg_catalog", row.names[0], "base") for number, row in enumerate(TYPES, 1)
}
_INT4 = next(oid for oid, one in _BASE.items() if one.name == "int4")
_NUMERIC = next(oid for oid, one in _BASE.items() if one.name == "numeric")
_MADE = {
    901: DatabaseType(901, "public", "_int4", "array", of=_INT4),
    902: DatabaseType(902, "public", "int4range", "range", of=_INT4),
    903: DatabaseType(903, "public", "int4multirange", "multirange", of=902),
    904: DatabaseType(904, "public", "place", "composite", fields=(Attribute("a", 901), Attribute("B", 902))),
    905: DatabaseType(905, "public", "_place", "array", of=904),
    906: DatabaseType(906, "public", "grade", "enum"),
    907: DatabaseType(907, "public", "price", "domain", of=_NUMERIC, modifier=(10 << 16 | 2) + 4),
}
_ATTRIBUTES = [
    *(Attribute("c", oid) for oid in (*_BASE, *_MADE)),
    Attribute("c", 901, dimensions=3),
    Attribute("c", _NUMERIC, modifier=(38 << 16 | 10) + 4),
    Attribute("c", _NUMERIC, modifier=(50 << 16 | 2) + 4),
]
KINDS = [resolve(attribute, _BASE | _MADE) for attribute in _ATTRIBUTES]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_type_comes_back(kind: ValueType) -> None:
    assert type_from_json(json.loads(json.dumps(type_to_json(kind)))) == kind


def test_every_form_was_tried() -> None:
    assert {kind.form for kind in KINDS} == set(ArrowForm) - {ArrowForm.MAP}
    hstore = resolve(Attribute("c", 1), {1: DatabaseType(1, "public", "hstore", "base", extension="hstore")})
    assert type_from_json(type_to_json(hstore)) == hstore
