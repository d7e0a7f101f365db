"""Are partitions, masks and soft_delete of `[[mirror.tables]]` checked, and the salt resolved?"""

from __future__ import annotations

from typing import Any

import pytest

from headrace.config.load import deployment_of
from headrace.config.mirror import MirrorConfig
from headrace.config.resolve import resolve_mirror
from headrace.config.secret import Secret
from headrace.errors import ErrorGroup
from headrace.model.lake_partition import Partition


def resolved(environ: dict[str, str], part: dict[str, Any], **settings: Any) -> MirrorConfig:
    values = {
        "source": {"type": "postgres", "connection_url": "postgresql://h/d"},
        "mirror": {"location": "lake", "tables": [{"tables": ["public.t"], **part}], **settings},
    }
    _, config = resolve_mirror(deployment_of(values, environ))
    return config


def test_options_are_read_and_the_salt_comes_from_the_environment() -> None:
    part = {"partition_by": ["day(at)", "c"], "masks": {"a": "sha256"}, "soft_delete": True}
    config = resolved({"SALT": "pepper"}, part, mask_salt={"env": "SALT"})
    assert config.mask_salt == Secret("pepper")
    assert "pepper" not in repr(config)
    assert config.tables[0].partitions == (Partition("at", "day"), Partition("c"))


@pytest.mark.parametrize(
    ("part", "settings", "problem"),
    [
        ({"partition_by": ["week(at)"]}, {}, "write a column's name, or one of year, month, day, hour"),
        ({"partition_by": ["c", "c"]}, {}, "name each partition once"),
        (
            {"soft_delete": True, "mode": "changes"},
            {},
            'soft_delete: mode "changes" keeps deleted rows anyway',
        ),
        ({"masks": {"a": "md5"}}, {}, "must be 'sha256', 'redact' or 'null'"),
        ({"masks": {"a": "sha256"}}, {}, "sha256 needs a mask_salt in [mirror]"),
        ({"masks": {"a": "sha256"}}, {"mask_salt": {"env": "ABSENT"}}, "ABSENT, which is not set"),
        ({"mask": {"a": "null"}}, {}, "masks"),
        ({}, {"mask_slat": "x"}, "mask_salt"),
    ],
)
def test_a_mistake_is_told(part: dict[str, Any], settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ErrorGroup) as raised:
        resolved({}, part, **settings)
    assert problem in str(raised.value)
