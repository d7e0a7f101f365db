"""A login that a server took before may be refused for some minutes."""

from __future__ import annotations

import psycopg

from headrace.errors import HeadraceError, Kind
from headrace.postgres.logins import Logins
from headrace.postgres.server_errors import connection_error

URL = "postgresql://u@h/d"
REFUSED = HeadraceError(
    Kind.AUTHENTICATION, "the database at h refused the user or the password", "Correct it."
)


def kinds(logins: Logins, *replications: str) -> list[Kind]:
    return [logins.judge(URL, replication, REFUSED).kind for replication in replications or ("",)]


def test_a_refusal_passes_for_some_minutes_where_the_login_was_taken_before() -> None:
    now = 0.0
    logins = Logins(lambda: now)
    assert kinds(logins) == [Kind.AUTHENTICATION], "it may be wrong"
    logins.note_success(URL, "")
    assert kinds(logins, "", "database") == [Kind.CONNECTION, Kind.AUTHENTICATION]
    assert "If it goes on: Correct it." in logins.judge(URL, "", REFUSED).remedy
    now = 299.0
    assert kinds(logins) == [Kind.CONNECTION]
    now = 301.0
    assert kinds(logins) == [Kind.AUTHENTICATION], "it has lasted"
    logins.note_success(URL, "")
    assert kinds(logins) == [Kind.CONNECTION], "the next series begins"
    now = 9000.0
    assert kinds(logins) == [Kind.CONNECTION], "the refusal before is of another series"


def test_a_process_of_a_run_expects_the_login_of_the_run() -> None:
    now = 0.0
    logins = Logins(lambda: now)
    logins.expect(URL)
    assert kinds(logins) == [Kind.CONNECTION]
    now = 200.0
    logins.expect(URL)  # by the next task
    assert kinds(logins) == [Kind.CONNECTION]
    now = 301.0
    assert kinds(logins) == [Kind.AUTHENTICATION]


def test_a_certificate_that_is_renewed_before_the_file_of_its_authority_passes_too() -> None:
    now = 0.0
    logins = Logins(lambda: now)
    text = "SSL error: certificate verify failed"
    refused = connection_error(psycopg.OperationalError(text), URL)
    assert logins.judge(URL, "", refused).kind is Kind.CONFIG, "it may be the wrong authority"
    logins.note_success(URL, "")
    assert logins.judge(URL, "", refused).kind is Kind.CONNECTION
    now = 200.0
    assert logins.judge(URL, "", refused).kind is Kind.CONNECTION
    now = 301.0
    assert logins.judge(URL, "", refused).kind is Kind.CONFIG, "it has lasted"


def test_another_error_stays_what_it_is() -> None:
    logins = Logins()
    logins.expect(URL)
    missing = HeadraceError(Kind.CONFIG, "there is no such database")
    assert logins.judge(URL, "", missing) is missing
