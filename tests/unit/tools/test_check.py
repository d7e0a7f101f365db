"""A problem shows the line of a schema file, and no line of the deployment file."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import Kind, LocatedError, Place
from headrace.tools.check import problem


@pytest.mark.parametrize(("kind", "shown"), [(Kind.SCHEMA, True), (Kind.CONFIG, False)])
def test_a_line_that_may_hold_a_password_is_not_shown(tmp_path: Path, kind: Kind, shown: bool) -> None:
    file = tmp_path / "file"
    file.write_text('[source]\npassword = "s3cret-word"\n')
    found = problem("error", LocatedError(kind, Place(file, 2, 1), "a mistake", "Correct it."))
    assert ("s3cret-word" in found.shown()) is shown
    assert (found.line, found.text) == (2, "a mistake")
