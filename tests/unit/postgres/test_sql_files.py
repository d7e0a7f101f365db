"""Each `.sql` file of a room is read by that room, and each one that is read is there."""

import re
from pathlib import Path

import headrace

SOURCE = Path(headrace.__file__).parent


def test_each_sql_file_is_read_by_its_room_and_each_one_read_exists() -> None:
    files = [path.relative_to(SOURCE) for path in SOURCE.rglob("sql/*.sql")]
    there = {(file.parent.parent, file.stem) for file in files}
    read = {
        (path.relative_to(SOURCE).parent, name)
        for path in SOURCE.rglob("*.py")
        for name in re.findall(r'read_sql\(__package__, "(\w+)"\)', path.read_text(encoding="utf-8"))
    }
    assert read == there
