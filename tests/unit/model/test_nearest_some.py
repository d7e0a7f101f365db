"""Of many names a line tells the first."""

from __future__ import annotations

from headrace.model.suggestion import some


def test_a_line_tells_some_of_many_names() -> None:
    assert some(["a", "b"]) == "a, b"
    assert some([str(number) for number in range(11)]).endswith("9, 10")
    assert some([str(number) for number in range(200)]).endswith("8, 9 … and 190 more")
