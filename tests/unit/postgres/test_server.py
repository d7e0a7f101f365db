from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.model.names import TableName
from headrace.postgres.connection import OLDEST, check_version
from headrace.postgres.server import ServerFacts, server_problems, server_warnings

SERVER = ServerFacts(
    version=180006,
    version_text="18.6",
    wal_level="logical",
    in_recovery=False,
    system_identifier=7,
    timeline=1,
    database_oid=5,
    database="shop",
    current_lsn=300,
    max_slots=10,
    used_slots=1,
    max_slot_wal_keep_size=None,
)


@pytest.mark.parametrize(("version", "name"), [(130014, "13"), (120022, "12"), (90624, "9.6")])
def test_a_server_before_14_is_refused_by_its_name(version: int, name: str) -> None:
    with pytest.raises(HeadraceError, match=f"PostgreSQL {name}.*14 and later") as refused:
        check_version(version)
    assert refused.value.kind is Kind.SERVER_VERSION


@pytest.mark.parametrize("version", [OLDEST, 150018, 160014, 180006])
def test_14_and_later_are_read(version: int) -> None:
    check_version(version)
    assert server_problems(replace(SERVER, version=version)) == ()


def test_a_standby_is_a_source_from_16_on() -> None:
    assert server_problems(replace(SERVER, version=160000, in_recovery=True)) == ()
    [problem] = server_problems(replace(SERVER, version=150018, in_recovery=True))
    assert problem.kind is Kind.SERVER_VERSION
    assert "15 decodes on a primary only" in problem.cause


ORDERS = TableName("public", "orders")


@pytest.mark.parametrize("version", [150000, 150005, 160000, 160001])
def test_a_version_that_leaves_defaults_out_of_old_rows_is_told_where_such_rows_are_read(
    version: int,
) -> None:
    server = replace(SERVER, version=version, version_text="15.5")
    [text] = server_warnings(server, [ORDERS])
    assert "old rows of orders:" in text
    assert "15.6 or 16.2" in text
    assert server_warnings(server, []) == ()


@pytest.mark.parametrize("version", [140020, 150006, 160002, 170000, 180006])
def test_other_versions_keep_defaults_in_old_rows(version: int) -> None:
    assert server_warnings(replace(SERVER, version=version), [ORDERS]) == ()


def test_a_database_whose_texts_nobody_checks_is_named() -> None:
    [text] = server_warnings(replace(SERVER, encoding="SQL_ASCII"), [])
    assert "database shop has the encoding SQL_ASCII" in text


@pytest.mark.parametrize(("names", "is_told"), [("*", True), ("ANY 1 (*)", True), ("FIRST 1 (a, b)", False)])
def test_a_setting_that_takes_the_stream_for_a_synchronous_standby_is_told(names: str, is_told: bool) -> None:
    told = server_warnings(replace(SERVER, synchronous_standbys=names), [])
    assert [text for text in told if "name the standbys" in text] == list(told)
    assert bool(told) == is_told
