"""A kept schema is read back as what it was."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from pathlib import Path
from random import Random

import pytest

from headrace.catalog import Catalog
from headrace.catalog.binding import findings
from headrace.errors import HeadraceError, Kind
from headrace.schema.load import load_schema
from headrace.schema.normal import denormalised, normalised, pack, spec_hash, unpack
from headrace.schema.tree import IndexSpec
from support.soak.random_database import invent_database
from support.soak.random_schemas import declare, text_of

Load = Callable[[str], IndexSpec]


def there_and_back(spec: IndexSpec) -> IndexSpec:
    return denormalised(unpack(pack(normalised(spec))), "another")


@pytest.mark.parametrize("name", ["users", "orders", "products"])
def test_the_shops_schemas_come_back(name: str) -> None:
    with resources.as_file(resources.files("headrace.tools.demo.shop")) as folder:
        spec = load_schema(folder / f"{name}.schema.yml", name)
    back = there_and_back(spec)
    assert back.name == "another"
    assert (normalised(back), back.hash) == (normalised(spec), spec.hash)
    assert back.tables() == spec.tables()


@pytest.mark.parametrize("seed", range(60))
def test_random_schemas_come_back(load: Load, seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    schemas, _ = declare(random, invent_database(random))
    for schema in schemas.values():
        spec = load(text_of(schema))
        back = there_and_back(spec)
        assert normalised(back) == normalised(spec)
        assert spec_hash(back, {"x": 1}) == spec_hash(spec, {"x": 1})
        assert there_and_back(back) == back


def test_a_mistake_in_a_stored_schema_names_it_in_the_place_of_a_line(load: Load) -> None:
    """Its file may say something else by now, and "kept:0:0" is no place."""
    spec = there_and_back(load("version: 1\ntable: a\nprimary_key: id\nfields: [{keyword: gone}]\n"))
    [finding] = findings(spec, Catalog({}))
    assert str(finding.error).startswith("[HEADRACE_BINDING] the stored schema: ")


def test_what_another_version_kept_is_refused(load: Load) -> None:
    kept = normalised(load("version: 1\ntable: a\nprimary_key: id\nfields: [{keyword: b}]\n"))
    for wrong in ({**kept, "format": 99}, {"format": kept["format"], "index": {"is": "later"}}, {}):
        with pytest.raises(HeadraceError) as refused:
            denormalised(wrong, "a")
        assert refused.value.kind is Kind.SCHEMA


@pytest.mark.parametrize("text", ["", "no schema", "bm8gc2NoZW1h"])
def test_what_nobody_packed_is_refused(text: str) -> None:
    with pytest.raises(HeadraceError) as refused:
        unpack(text)
    assert refused.value.kind is Kind.SCHEMA
