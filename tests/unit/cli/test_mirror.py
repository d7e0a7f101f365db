"""Does `headrace mirror` refuse options that mean nothing together?"""

from __future__ import annotations

import pytest

from headrace.cli import main


@pytest.mark.parametrize(
    "words",
    [
        ["run", "public.t"],
        ["run", "--repair"],
        ["verify", "--once"],
        ["verify", "--reload"],
        ["check", "--once"],
        ["check", "public.t"],
    ],
)
def test_options_of_the_other_action_are_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["mirror", *words])
    assert ended.value.code == 2
    assert "tables and --repair to `headrace mirror verify`" in " ".join(capsys.readouterr().err.split())
