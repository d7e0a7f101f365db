"""Are masked values those that the mask gives, from tables as from the log, and nothing else?"""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pytest

from headrace.config.secret import Secret
from headrace.mirror.alterations import altered_rows, plan_alteration
from headrace.mirror.columns import MASK
from headrace.mirror.masks import Masks
from headrace.mirror.modes import MODES

SALT = Secret("pepper")
MASKS = Masks({"email": "sha256", "phone": "redact", "note": "null", "absent": "sha256"}, SALT)


def test_masked_values_are_hashed_starred_or_left_out() -> None:
    rows = pa.table({"id": [1, 2], "email": ["ä@b", None], "phone": ["1", None], "note": [3, None]})
    expected: dict[str, list[object]] = {
        "id": [1, 2],
        "email": [hashlib.sha256("pepperä@b".encode()).hexdigest(), None],
        "phone": ["***", None],
        "note": [None, None],
    }
    masked = MASKS.apply(rows)
    assert masked.to_pydict() == expected
    assert masked.schema == rows.schema
    [batch] = rows.to_batches()
    assert MASKS.apply(batch).to_pydict() == expected


def test_another_salt_is_another_mask() -> None:
    assert MASKS.described("email") == Masks(MASKS.kinds, Secret("pepper")).described("email")
    assert MASKS.described("email") != Masks(MASKS.kinds, Secret("salt")).described("email")
    assert (MASKS.described("phone"), MASKS.described("id")) == (b"redact", None)


def schema(name: str, mask: bytes | None) -> pa.Schema:
    metadata: dict[bytes, bytes] = {b"headrace.column": b"2", b"headrace.type": b"text"}
    return pa.schema(
        [
            pa.field(
                "id",
                pa.int32(),
                metadata={"headrace.column": "1", "headrace.type": "int4", "headrace.key": "0"},
            ),
            pa.field(name, pa.string(), metadata=metadata | ({MASK: mask} if mask else {})),
        ]
    )


@pytest.mark.parametrize(("before", "after"), [(None, b"redact"), (b"redact", None), (b"redact", b"null")])
def test_a_table_with_another_mask_is_read_anew_and_keeps_no_old_value(
    before: bytes | None, after: bytes | None
) -> None:
    old, new = schema("email", before), schema("email", after)
    planned = plan_alteration(old, new, keeps=True, highest=2)
    assert planned.needs_load
    batch = pa.record_batch([pa.array([1], pa.int32()), pa.array(["clear"])], schema=old)
    [rows] = altered_rows([batch], planned, lambda _: pa.scalar(None, pa.string()), MODES["history"])
    assert rows.to_pylist() == [{"id": 1, "email": None}]
