from __future__ import annotations

import pickle

import psycopg
import pytest

from headrace.errors import Kind, Retry
from headrace.postgres.connection import with_defaults
from headrace.postgres.quoting import replication_literal
from headrace.postgres.server_errors import RemovedLogError, connection_error, sqlstate_error, statement_error

URL = "postgresql://me:secret@db.example:5433/shop"
AT = 'connection to server at "127.0.0.1", port 5433 failed: '


@pytest.mark.parametrize(
    ("state", "message", "streaming", "kind"),
    [
        (None, "server closed the connection unexpectedly", True, Kind.CONNECTION),
        ("57P01", "terminating connection due to administrator command", True, Kind.CONNECTION),
        ("57014", "canceling statement due to user request", True, Kind.CONNECTION),
        ("53100", "could not write to file: No space left on device", True, Kind.CONNECTION),
        ("42501", "must be superuser or replication role", False, Kind.PRIVILEGE),
        ("55006", 'replication slot "s" is active for PID 7', False, Kind.SLOT_IN_USE),
        ("53400", "all replication slots are in use", False, Kind.NO_FREE_SLOT),
        ("53400", "temporary file size exceeds temp_file_limit (1048576kB)", True, Kind.DATABASE),
        ("42704", 'replication slot "s" does not exist', False, Kind.SLOT_UNKNOWN),
        ("42704", 'publication "p" does not exist', True, Kind.PUBLICATION),
        ("42704", "Publikation »p« existiert nicht", True, Kind.PUBLICATION),
        ("42710", 'replication slot "s" already exists', False, Kind.CONFIG),
        ("55000", 'can no longer get changes from replication slot "s"', False, Kind.SLOT_LOST),
        ("55000", "cannot read; This slot has been invalidated because …", False, Kind.SLOT_LOST),
        (
            "55000",
            'read from "s"; invalidated because it was conflicting with recovery',
            True,
            Kind.SLOT_LOST,
        ),
        ("55000", 'This slot has been invalidated due to "wal_level_insufficient"', True, Kind.SLOT_LOST),
        ("55000", "logical decoding requires wal_level >= logical", False, Kind.WAL_LEVEL),
        ("55000", 'slots can only be used if "max_replication_slots" > 0', False, Kind.NO_FREE_SLOT),
        ("53300", 'requested standby connections exceed "max_wal_senders"', False, Kind.NO_FREE_SLOT),
        ("42601", 'syntax error at or near "IDENTIFY_SYSTEM"', False, Kind.POOLER),
        ("55000", "cannot use physical replication slot for logical decoding", False, Kind.DATABASE),
        ("XX000", "could not read", True, Kind.SERVER_FAULT),
        ("58P01", 'could not open file "pg_logical/snapshots/0-16.snap"', False, Kind.SERVER_FAULT),
        ("58P01", "requested WAL segment 00000001000000000000000A has …", True, Kind.SERVER_FAULT),
        ("58P01", "das angeforderte WAL-Segment 00000001000000000000000A wurde …", True, Kind.SERVER_FAULT),
        ("55000", "replication slots cannot be used on RO (Read Only) node", False, Kind.CONNECTION),
        ("25006", "cannot execute … in a read-only transaction", False, Kind.CONNECTION),
        ("0A000", "logical decoding cannot be used while in recovery", False, Kind.CONNECTION),
        ("25P04", "terminating connection due to transaction timeout", True, Kind.CONNECTION),
        ("XX000", "invalid memory alloc request size 1200000003", True, Kind.DATABASE),
    ],
)
def test_a_refusal_is_told_by_its_state_first(
    state: str | None, message: str, streaming: bool, kind: Kind
) -> None:
    error = sqlstate_error(state, message, place="db:1/x", slot="s", streaming=streaming)
    assert error.kind is kind
    assert "\n" not in str(error)
    assert error.remedy or kind in {Kind.CONNECTION, Kind.DATABASE, Kind.SERVER_FAULT}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("XX000", "invalid memory alloc request size 1200000003"),
        ("54000", "out of memory; Cannot enlarge string buffer containing 900000000 bytes by 900000000 more"),
        ("54000", "string buffer exceeds maximum allowed length (1073741823 bytes)"),
    ],
)
def test_a_row_that_no_server_can_send_is_not_waited_for(state: str, message: str) -> None:
    error = sqlstate_error(state, message, place="db:1/x", slot="s", streaming=True)
    assert error.retry is Retry.NEVER
    assert "Waiting does not help" in error.remedy


def test_a_right_that_the_server_names_is_not_the_right_to_replicate() -> None:
    message = "permission denied for function pg_logical_slot_get_binary_changes"
    assert "REPLICATION" not in sqlstate_error("42501", message, place="db:1/x").remedy


def test_a_row_filters_error_in_the_stream_quotes_no_value() -> None:
    message = 'invalid input syntax for type integer: "s3cret"'
    error = sqlstate_error("22P02", message, place="db:1/x", slot="s", streaming=True)
    assert "s3cret" not in str(error)
    assert "s3cret" in error.full_cause


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('FATAL: password authentication failed for user "me"', Kind.AUTHENTICATION),
        ('FATAL: PAM authentication failed for user "me"', Kind.AUTHENTICATION),
        ('FATAL: Cloud SQL IAM user authentication failed for user "me"', Kind.AUTHENTICATION),
        ("FATAL: no such user: me", Kind.AUTHENTICATION),
        ("SSL error: sslv3 alert certificate expired", Kind.AUTHENTICATION),
        ("SSL error: tlsv13 alert certificate required", Kind.AUTHENTICATION),
        ("FATAL: no such database: shop", Kind.CONFIG),
        ("SSL error: tlsv1 alert protocol version", Kind.CONFIG),
        ("SSL error: ssl/tls alert handshake failure", Kind.CONFIG),
        ("SSL error: dh key too small", Kind.CONFIG),
        ("FATAL: SSL connection is required", Kind.CONFIG),
        ("ERROR: connection is insecure (try using `sslmode=require`)", Kind.CONFIG),
        ('FATAL: unrecognized configuration parameter "foo"', Kind.CONFIG),
        ("FATAL: invalid command-line argument for server process: -x", Kind.CONFIG),
        ("SSL error: unexpected eof while reading", Kind.CONNECTION),
        ("FATAL: Max client connections reached", Kind.CONNECTION),
        ("FATAL: server login has been failing, try again later (server_login_retry)", Kind.CONNECTION),
        ("FATAL: query_wait_timeout", Kind.CONNECTION),
        ("FATAL: could not get connection from the pool - AllServersDown", Kind.CONNECTION),
        ("FATAL: the database system is not yet accepting connections", Kind.CONNECTION),
        ("session is read-only", Kind.CONNECTION),
        ('connection is bad: definition of service "nope" not found', Kind.CONFIG),
        ('connection is bad: service file "/nope" not found', Kind.CONFIG),
        (f'{AT}invalid integer value "1s" for connection option "keepalives_idle"', Kind.CONFIG),
        ("could not match 2 port numbers to 3 hosts", Kind.CONFIG),
        ("could not match 1 host names with 2 hostaddr values", Kind.CONFIG),
        ('FATAL: role "me" does not exist', Kind.AUTHENTICATION),
        ('FATAL: no pg_hba.conf entry for host "1.2.3.4"', Kind.AUTHENTICATION),
        ('FATAL: database "shop" does not exist', Kind.CONFIG),
        ("server does not support SSL, but SSL was required", Kind.CONFIG),
        ('connection is bad: invalid sslmode value: "bogus"', Kind.CONFIG),
        ("connection refused\n\tIs the server running on that host?", Kind.CONNECTION),
        ("FATAL: the database system is starting up", Kind.CONNECTION),
        ("FATAL: sorry, too many clients already", Kind.CONNECTION),
    ],
)
def test_only_what_waiting_cures_is_tried_again(text: str, kind: Kind) -> None:
    error = connection_error(psycopg.OperationalError(text), URL)
    assert error.kind is kind
    assert (error.retry is Retry.BACK_OFF) == (kind is Kind.CONNECTION)
    assert "db.example:5433/shop" in str(error)
    assert "secret" not in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("text", "options", "kind"),
    [
        ("FATAL: unsupported startup parameter: replication", "", Kind.POOLER),
        ("FATAL: Tenant or user not found", "", Kind.POOLER),
        ("FATAL: pgbouncer cannot connect to server", "", Kind.POOLER),
        ("FATAL: pgbouncer cannot connect to server", "?session_proxy=true", Kind.CONNECTION),
        ('connection to server at "pgbouncer", port 5432 failed: Connection refused', "", Kind.CONNECTION),
        ('FATAL: password authentication failed for user "odyssey"', "", Kind.AUTHENTICATION),
    ],
)
def test_a_pooler_is_known_by_its_words_and_not_by_names(text: str, options: str, kind: Kind) -> None:
    assert connection_error(psycopg.OperationalError(text), URL + options).kind is kind


REFUSED_IN_CLEAR = (
    'FATAL:  no pg_hba.conf entry for host "127.0.0.1", user "me", database "shop", no encryption'
)


@pytest.mark.parametrize(
    ("by_tls", "kind"),
    [
        ("FATAL:  canceling authentication due to timeout", Kind.CONNECTION),
        ("FATAL:  sorry, too many clients already", Kind.CONNECTION),
        ("FATAL:  the database system is starting up", Kind.CONNECTION),
        ("server closed the connection unexpectedly\n\tThis probably means that", Kind.CONNECTION),
        ("SSL error: unexpected eof while reading", Kind.CONNECTION),
        ('FATAL:  database "shop" does not exist', Kind.CONFIG),
        ("could not initiate GSSAPI security context: No credentials", Kind.AUTHENTICATION),
    ],
)
def test_what_the_server_answers_by_tls_decides_over_a_refusal_in_the_clear(by_tls: str, kind: Kind) -> None:
    """With sslmode=prefer libpq tries again without TLS, which many servers never take."""
    error = psycopg.OperationalError(f"connection failed: {AT}{by_tls}\n{AT}{REFUSED_IN_CLEAR}")
    assert connection_error(error, URL).kind is kind


def test_what_a_server_answers_is_not_taken_for_a_wrong_address() -> None:
    at = 'connection failed: connection to server at "127.0.0.1", port 5433 failed: '
    for text in ("FATAL:  sorry, too many clients already", "ERROR:  exceeded the compute time quota"):
        assert "host and port" not in connection_error(psycopg.OperationalError(at + text), URL).remedy
    assert "host and port" in connection_error(psycopg.OperationalError(at + "timeout expired"), URL).remedy


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (psycopg.errors.TooManyConnections("too many connections"), Kind.CONNECTION),
        (psycopg.errors.ProtocolViolation("query_wait_timeout"), Kind.CONNECTION),
        (psycopg.errors.InternalError_("Unable to check out process from the pool"), Kind.CONNECTION),
        (psycopg.errors.InvalidPassword("password authentication failed"), Kind.AUTHENTICATION),
        (psycopg.errors.UndefinedObject('unrecognized configuration parameter "x"'), Kind.DATABASE),
    ],
)
def test_what_refuses_the_first_statements_is_told_by_its_state(error: psycopg.Error, kind: Kind) -> None:
    """A pooler takes the login itself, and passes on at the first statement what the server says."""
    assert connection_error(error, URL).kind is kind


def test_a_refused_connection_is_told_in_one_sentence() -> None:
    text = (
        'connection failed: connection to server at "127.0.0.1", port 5433 failed: Connection refused\n'
        "\tIs the server running on that host and accepting TCP/IP connections?"
    )
    assert connection_error(psycopg.OperationalError(text), URL).cause == (
        "no connection to the database at db.example:5433/shop: Connection refused"
    )
    two = f"{text}\n{text.replace('127.0.0.1', '::1')}"
    told = connection_error(psycopg.OperationalError(two), URL).cause
    assert '"127.0.0.1"' in told
    assert '"::1"' in told
    assert "?" not in told


def test_the_url_decides_over_our_defaults_but_not_over_the_encoding() -> None:
    text = with_defaults(URL + "?connect_timeout=3&sslmode=verify-full&client_encoding=latin1")
    assert "connect_timeout=3" in text
    assert "sslmode=verify-full" in text
    assert "client_encoding=UTF8" in text


def test_a_literal_of_the_replication_grammar_doubles_quotes_and_keeps_backslashes() -> None:
    assert replication_literal('"a\\\'b"') == "'\"a\\''b\"'"


@pytest.mark.parametrize(
    ("state", "message", "kind"),
    [
        ("XX000", "cache lookup failed for relation 16399", Kind.SERVER_FAULT),
        ("XX000", "could not open relation with OID 16399", Kind.SERVER_FAULT),
        ("XX000", "parse error - invalid geometry", Kind.DATABASE),
        ("XX000", "invalid memory alloc request size 1200000003", Kind.DATABASE),
        ("58P01", 'could not access file "$libdir/postgis-3": No such file or directory', Kind.DATABASE),
        ("54000", "total size of jsonb object elements exceeds the maximum", Kind.DATABASE),
        ("25006", "cannot execute INSERT in a read-only transaction", Kind.DATABASE),
        ("25P03", "terminating connection due to idle-in-transaction timeout", Kind.CONNECTION),
        ("53300", "sorry, too many clients already", Kind.CONNECTION),
        ("53400", "temporary file size exceeds temp_file_limit (1048576kB)", Kind.DATABASE),
        ("26000", 'prepared statement "_pg3_0" does not exist', Kind.POOLER),
        ("42P05", 'prepared statement "_pg3_0" already exists', Kind.POOLER),
        ("XX001", "missing chunk number 0 for toast value 16405 in pg_toast_16399", Kind.DATABASE),
    ],
)
def test_an_error_of_a_row_or_of_a_users_function_is_not_taken_for_a_fault_of_the_server(
    state: str, message: str, kind: Kind
) -> None:
    """Functions of extensions raise the states of a broken server for what they find in a row."""
    assert statement_error(state, message, URL).kind is kind


def test_a_remedy_says_more_than_the_message() -> None:
    policy = statement_error("42501", 'query would be affected by row-level security policy for "t"', URL)
    assert "BYPASSRLS" in policy.remedy
    assert "pg_amcheck" in statement_error("XX001", "compressed pglz data is corrupt", URL).remedy
    too_much = "temporary file size exceeds temp_file_limit (1048576kB)"
    assert "ALTER ROLE" in statement_error("53400", too_much, URL).remedy


@pytest.mark.parametrize("told", ["channel binding check failed", "channel binding negotiation error"])
def test_a_proxy_that_ends_tls_is_told_from_a_binding_that_is_required_without_tls(told: str) -> None:
    remedies = [
        connection_error(psycopg.OperationalError(text), URL).remedy
        for text in (f"{AT}FATAL:  SCRAM {told}", "channel binding required, but SSL not in use")
    ]
    assert ["channel_binding=disable" in remedy for remedy in remedies] == [True, False]


def test_removed_log_is_known_in_another_process_too() -> None:
    message = "requested WAL segment 00000001000000000000000A has already been removed"
    error = sqlstate_error("58P01", message, place="db:1/x", slot="s", streaming=True)
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, RemovedLogError)
    assert str(again) == str(error)
