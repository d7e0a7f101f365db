"""The hash says whether documents would differ, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from headrace.schema.normal import normalised, spec_hash
from headrace.schema.tree import IndexSpec

Load = Callable[[str], IndexSpec]

BASE = """version: 1
table: users
primary_key: id
filters:
  - { column: a, op: eq, value: 1 }
  - { column: b, op: is_null }
fields:
  - keyword: email
    options: { ignore_above: 9, normalizer: x }
  - text: bio
"""


@pytest.mark.parametrize(
    "same",
    [
        "# said\n" + BASE,
        BASE.replace("  - text: bio", "  - text: bio\n    description: what they say")
        + "description: people\n",
        BASE.replace("table: users", "table: USERS"),
        BASE.replace("  - text: bio\n", "").replace("fields:\n", "fields:\n  - text: bio\n"),
        BASE.replace("{ ignore_above: 9, normalizer: x }", "{normalizer: x, ignore_above: 9}"),
        BASE.replace("  - text: bio", "  - text: bio\n    required: false\n    column: bio"),
        BASE.replace("  - { column: b, op: is_null }\n", "").replace(
            "filters:\n", "filters:\n  - {op: is_null, column: b}\n"
        ),
    ],
)
def test_formatting_changes_nothing(load: Load, same: str) -> None:
    assert load(same).hash == load(BASE).hash


@pytest.mark.parametrize(
    "other",
    [
        BASE.replace("users", "people"),
        BASE.replace("primary_key: id", "primary_key: uid"),
        BASE.replace("value: 1", "value: 2"),
        BASE.replace("value: 1", "value: '1'"),
        BASE.replace("value: 1", "value: true"),
        BASE.replace("9", "10"),
        BASE.replace("text: bio", "keyword: bio"),
        BASE.replace("text: bio", "text: bio\n    column: about"),
        BASE.replace("text: bio", "text: bio\n    transforms: [trim]"),
        BASE.replace("text: bio", "text: bio\n    default: x"),
        BASE + "soft_delete: {column: gone}\n",
    ],
)
def test_what_determines_documents_changes_it(load: Load, other: str) -> None:
    assert load(other).hash != load(BASE).hash


def test_the_normal_form_is_json_without_places(load: Load) -> None:
    text = json.dumps(normalised(load(BASE), {"text_analysis": "icu"}), allow_nan=False)
    assert "schema.yml" not in text
    assert '"text_analysis": "icu"' in text


def test_extra_counts(load: Load) -> None:
    spec = load(BASE)
    assert spec_hash(spec) == spec.hash
    assert spec_hash(spec, {"text_analysis": "icu"}) != spec.hash


def test_the_hash_is_stable(load: Load) -> None:
    """A change of this value re-seeds every index of every user: raise DOCUMENT_FORMAT, or undo it."""
    assert load(BASE).hash == "ba948f0ca3"
