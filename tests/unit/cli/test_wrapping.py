"""Does a text fit a terminal's width without a word that is cut?"""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from headrace.cli.wrapping import is_stacked, table_lines, wrap, wrap_sql

_HEAD = ("slot", "read by", "behind", "state")
_ROWS = [
    (
        "headrace_library_efa869",
        "pid 4711, headrace/library of postgres, from 127.0.0.1",
        "12.5 MB",
        "reserved",
    ),
    ("other", "nobody", "3 B", "lost: its log is removed (max_slot_wal_keep_size)"),
]
_RIGHT = (2,)


def lines(width: int | None) -> list[str]:
    return list(table_lines(_HEAD, _ROWS, _RIGHT, width))


def words(text: str) -> list[str]:
    return text.split()


@pytest.mark.parametrize("width", [20, 40, 80, 120])
def test_lines_are_broken_between_words_and_nothing_is_left_out(width: int) -> None:
    text = "[HEADRACE_X] a.yml:3:1: no index of books begins with (author_id): run: CREATE INDEX on books."
    found = wrap(text, width, first=6)
    assert words(" ".join(found)) == words(text)
    assert all(cell_len(line) <= width for line in found)
    assert 6 + cell_len(found[0]) <= width


def test_a_command_in_backticks_stays_whole_where_it_fits() -> None:
    text = "This is to be mended so: run `headrace teardown --indexes`, then the other one."
    assert any("`headrace teardown --indexes`," in line for line in wrap(text, 40))
    assert max(map(cell_len, wrap(text, 20))) <= 20


def test_what_is_wider_than_the_terminal_alone_is_not_cut() -> None:
    assert wrap("see http://example.org/a-long-address now", 12) == [
        "see",
        "  http://example.org/a-long-address",
        "  now",
    ]


def test_wide_letters_count_twice() -> None:
    assert all(cell_len(line) <= 10 for line in wrap("漢字 漢字 漢字 漢字", 10))


def test_sql_is_never_broken_in_quotes_and_a_comment_stays_one() -> None:
    statement = 'COMMENT ON PUBLICATION "an odd name" IS \'made by headrace {"a": [1, 2]}\';'
    found = wrap_sql(statement, 30)
    assert len(found) > 1
    assert any("'made by headrace {\"a\": [1, 2]}';" in line for line in found)
    assert any('"an odd name"' in line for line in found)
    comment = wrap_sql("-- lock: ACCESS EXCLUSIVE on books, for a moment: everyone waits", 30)
    assert len(comment) > 1
    assert all(line.startswith("--") for line in comment)


def test_a_table_has_one_line_for_a_row_where_there_is_room_or_no_terminal() -> None:
    assert len(lines(None)) == len(lines(200)) == 1 + len(_ROWS)


def test_a_narrow_table_breaks_its_cells_between_words() -> None:
    found = lines(80)
    assert all(cell_len(line) <= 80 for line in found)
    assert sorted(words(" ".join(found))) == sorted(words(" ".join([*_HEAD, *_ROWS[0], *_ROWS[1]])))
    column = found[0].index("behind") + len("behind")
    assert [line[:column].endswith(number) for line, number in ((found[1], "12.5 MB"),)] == [True]


def test_a_table_that_cannot_become_so_narrow_has_a_block_for_each_row() -> None:
    assert not is_stacked(_HEAD, _ROWS, _RIGHT, 80)
    assert is_stacked(_HEAD, _ROWS, _RIGHT, 50)
    found = lines(50)
    assert all(cell_len(line) <= 50 for line in found)
    assert found[0] == "headrace_library_efa869"
    assert found[1].startswith("  read by  pid 4711,")
    assert found[2] == " " * len("  read by  ") + "from 127.0.0.1"
    assert "" in found, "a line between the rows"
