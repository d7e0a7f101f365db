"""Turn what the server refuses (a connection, a statement, a slot) into an error with a remedy. Pure.

The SQLSTATE decides first. The message is looked at only where one state has several meanings, or where there
is none (a refused connection). So a server with messages in another language is understood as far as its
states go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import psycopg

from headrace.errors import BACKFILL_AGAIN, HeadraceError, Kind, Retry
from headrace.postgres.address import Address, parse_address
from headrace.postgres.error_classes import ErrorClass, classify
from headrace.postgres.password import hide_passwords

GRANT_REPLICATION = (
    "Grant the right to replicate: plain PostgreSQL `ALTER ROLE {role} REPLICATION`; RDS and Aurora "
    "`GRANT rds_replication TO {role}`; Cloud SQL `ALTER USER {role} WITH REPLICATION`; "
    "Azure `ALTER ROLE {role} REPLICATION` as a member of azure_pg_admin"
)
"""The remedy for a role that may not replicate; `{role}` is the role's quoted name."""


WITHOUT_DEPLOYMENT = " Without a deployment drop the slot, and backfill again."
_GRANT = (
    "Grant the privilege that it names. An owner's right comes with membership in the owning role; a "
    "row-level security policy is passed with ALTER ROLE … BYPASSRLS."
)


class RemovedLogError(HeadraceError):
    """A piece of the log is not there; the slot is lost where that lasts."""


class OtherServerError(HeadraceError):
    """A statement needs another server, as by postgres_fdw, which fails now."""


def sqlstate_error(
    sqlstate: str | None,
    message: str,
    *,
    place: str,
    slot: str = "",
    role: str = "the role",
    streaming: bool = False,
    context: str = "",
) -> HeadraceError:
    """Return the error for a refused replication command or function on slots.

    Args:
        sqlstate: the server's code; None where the connection broke without one.
        message: the server's primary message.
        place: host, port and database, for people.
        slot: the slot that the command named.
        role: the role's quoted name, for the grant.
        streaming: whether the stream had begun (then a missing object is the publication).
        context: where the server met it, in its words.
    """
    text = " ".join(message.split()).rstrip(".")
    state = sqlstate or ""
    # configuration_limit_exceeded: no slot is free, or no room for large transactions; too_many_connections:
    # no walsender is.
    if state in ("53400", "53300") and "temp_file_limit" not in text:
        return no_free_slot(text)
    meaning = classify(state, text, log=True)
    if (passing := _passing_error(meaning, state, text, place)) is not None:
        return passing
    if meaning is ErrorClass.TOO_LARGE:
        return _row_too_large(text, slot)
    if state == "42501":
        # Of a function, for example; the right to replicate is missed in other words.
        grant = _GRANT if "permission denied for" in text else GRANT_REPLICATION.format(role=role) + "."
        return HeadraceError(Kind.PRIVILEGE, f"{place} refuses replication: {text}", grant)
    # syntax_error: our commands are correct, so it is no server of PostgreSQL in replication mode.
    if state == "42601":
        return pooler_error(place, f"it does not know the commands of replication: {text}")
    return _slot_error(state, text, slot, context, streaming=streaming)


def whole_message(error: psycopg.Error) -> str:
    """Return the server's message with its detail, which says why a slot cannot be read."""
    return "; ".join(filter(None, (error.diag.message_primary, error.diag.message_detail))) or str(error)


def _passing_error(meaning: ErrorClass, state: str, text: str, place: str) -> HeadraceError | None:
    """Return the error of what another try may cure; None for other errors."""
    if meaning is ErrorClass.AWAY:
        if state == "" or state.startswith(("08", "57P", "25P")):
            return HeadraceError(Kind.CONNECTION, f"the connection to {place} was lost: {text}")
        return HeadraceError(Kind.CONNECTION, f"the server at {place} cannot answer now: {text}")
    if meaning is ErrorClass.PASSES:
        return HeadraceError(
            Kind.SERVER_FAULT, f"the server at {place} has a fault that usually passes: {text}"
        )
    if meaning is ErrorClass.LOG_REMOVED:
        return RemovedLogError(Kind.SERVER_FAULT, f"the server at {place} does not find its log: {text}")
    if meaning in (ErrorClass.NOT_PRIMARY, ErrorClass.READ_ONLY):
        return not_primary(place, text)
    return None


_AWAIT_PRIMARY = (
    "While a failover goes on, it passes; else give the address of the primary (Aurora: of the writer)."
)


def not_primary(place: str, text: str) -> HeadraceError:
    """Return the error of a server that takes no writes, as in a failover."""
    return HeadraceError(
        Kind.CONNECTION, f"the server at {place} is not the primary now: {text}", _AWAIT_PRIMARY
    )


def read_only_role(place: str, text: str) -> HeadraceError:
    """Return the error of a primary on which the role's transactions are read-only by default."""
    return HeadraceError(
        Kind.PRIVILEGE,
        f"{place} refuses to write: {text}: default_transaction_read_only is on for this role, this database "
        "or the server",
        "ALTER ROLE … SET default_transaction_read_only = off (or ALTER DATABASE, where it is set there), or "
        "let another role do it.",
    )


_BEHIND = (
    "then begin behind that row: `headrace teardown` and `headrace run`, or a new slot and a new checkpoint "
    "for a query of your own."
)


def _unsendable_text(state: str, text: str, slot: str, context: str) -> HeadraceError:
    """Return the error for a row whose text has no form in UTF-8; it stays in the log of every reader."""
    found = _POSITION.search(context)
    where = f" at {found[0]}" if found else ""
    return HeadraceError(
        Kind.DATABASE,
        f"the slot {slot!r} has come to a text{where} that has no form in UTF-8 (SQLSTATE {state})",
        "Waiting does not help. Correct the texts for which convert_to(COLUMN, 'UTF8') fails, or leave the "
        f"column out of the publication; {_BEHIND}",
        f"the slot {slot!r} has come to a text{where} that has no form in UTF-8: {text}",
    )


_POSITION = re.compile("LSN [0-9A-F]+/[0-9A-F]+")


def _row_too_large(text: str, slot: str) -> HeadraceError:
    """Return the error for a row that no server can send; it stays in the log of every reader."""
    return HeadraceError(
        Kind.DATABASE,
        f"the slot {slot!r} has come to a row of more than 1 GB, which PostgreSQL cannot send: {text}",
        "Waiting does not help. Keep such values smaller (a bytea takes twice its bytes, and REPLICA "
        "IDENTITY FULL sends the old row too), or leave the column out of the publication; "
        f"{_BEHIND} Where no row is so large, update the server first: 13.21, 14.18, 15.13, 16.9 and 17.5 "
        "say this of many altered tables.",
    )


def _slot_error(state: str, text: str, slot: str, context: str, *, streaming: bool) -> HeadraceError:
    # object_in_use: another process has acquired the slot.
    if state == "55006":
        return HeadraceError(
            Kind.SLOT_IN_USE,
            f"the replication slot {slot!r} is in use: {text}",
            "Stop the other reader, or give this deployment a slot of its own.",
        )
    # duplicate_object: a slot of this name exists.
    if state == "42710":
        return HeadraceError(
            Kind.CONFIG,
            f"the replication slot {slot!r} cannot be created: {text}",
            "Name another slot, or drop this one if nothing reads it.",
        )
    if state == "42704":
        return _missing_object(text, slot, streaming=streaming)
    if state == "55000":
        return _unusable_slot(text, slot)
    # untranslatable_character, character_not_in_repertoire
    if state in ("22P05", "22021"):
        return _unsendable_text(state, text, slot, context)
    return _refused(state, text)


def no_free_slot(text: str) -> HeadraceError:
    """Return the error for a server without a free slot or walsender."""
    return HeadraceError(
        Kind.NO_FREE_SLOT,
        f"the server has no free slot or walsender for another reader: {text}",
        "Drop a slot that is not needed (SELECT pg_drop_replication_slot('NAME')), or raise "
        "max_replication_slots and max_wal_senders and restart the server.",
    )


def _missing_object(text: str, slot: str, *, streaming: bool) -> HeadraceError:
    # 42704 is any missing object. The slot was found when the stream began.
    if streaming or "publication" in text.lower():
        return HeadraceError(
            Kind.PUBLICATION,
            f"the slot {slot!r} was read with a publication that its history does not know: {text}",
            "A publication must be older than its slot: create the publication, then drop and create the "
            "slot (a deployment: `headrace teardown`, then `headrace run`), and backfill again.",
        )
    return HeadraceError(
        Kind.SLOT_UNKNOWN,
        f"there is no replication slot {slot!r}: {text}",
        f"Correct its name; if it was dropped, changes are lost with it. {BACKFILL_AGAIN}",
    )


def _unusable_slot(text: str, slot: str) -> HeadraceError:
    # object_not_in_prerequisite_state has many causes, which only the text tells apart.
    lowered = text.lower()
    # First: wal_level may be what a slot was invalidated for.
    if "can no longer" in lowered or "invalidated" in lowered or "wal_removed" in lowered:
        return slot_lost(slot, text)
    if "wal_level" in lowered:
        return HeadraceError(
            Kind.WAL_LEVEL,
            text,
            "Set wal_level = logical and restart the server (`headrace check` says how).",
        )
    if "max_replication_slots" in lowered:
        return no_free_slot(text)
    return HeadraceError(
        Kind.DATABASE,
        f"the slot {slot!r} cannot be used: {text} (SQLSTATE 55000)",
        "If it is a physical slot, or one of another database, name another.",
    )


def slot_in_use_by(reader: str | None, slot: str) -> HeadraceError:
    """Return the error that names the reader of a slot; None: it has just ended."""
    return HeadraceError(
        Kind.SLOT_IN_USE,
        f"the replication slot {slot!r} is read by another session ({reader or 'which has just ended'})",
        "Stop that reader, or name a slot of its own for each.",
    )


def slot_lost(slot: str, why: str) -> HeadraceError:
    """Return the error for a slot whose log the server has removed."""
    return HeadraceError(
        Kind.SLOT_LOST,
        f"the replication slot {slot!r} is lost, and changes with it: {why}",
        f"{BACKFILL_AGAIN}{WITHOUT_DEPLOYMENT} So that the next slot survives longer stops, raise "
        "max_slot_wal_keep_size, and idle_replication_slot_timeout where it is set; on a standby turn "
        "hot_standby_feedback on.",
    )


def pooler_error(place: str, reason: str) -> HeadraceError:
    """Return the error for a connection pooler in the place of a server."""
    return HeadraceError(
        Kind.POOLER,
        f"a connection pooler answers at {place}: {reason}",
        "Give the address of the server itself (often port 5432). Only where a proxy keeps one session for "
        "each connection and carries replication too: add session_proxy=true to the connection URL.",
    )


def connection_error(error: psycopg.Error, url: str) -> HeadraceError:
    """Return the error of a failed attempt to connect, or of the first statements, without passwords."""
    address = parse_address(url)
    refusal = _find_refusal(str(error), address)
    if refusal is not None:
        return refusal
    text = _as_line(str(error))
    # Only of a statement there is a state. The first ones run no function of a user.
    if classify(error.sqlstate or "", text, log=True) is ErrorClass.REFUSED:
        return database_error(error, url)
    is_answer = error.sqlstate is not None or _ANSWER.search(text) is not None
    return HeadraceError(
        Kind.CONNECTION,
        f"no connection to the database at {address.place}: {_reason(text)}",
        _ANSWERED if is_answer else "Check host and port and that the server runs.",
    )


def _find_refusal(text: str, address: Address) -> HeadraceError | None:
    """Return what the attempts to connect mean; None where nothing says that they cannot succeed."""
    refusals = [_connection_refusal(_as_line(line), address) for line in _attempts(text)]
    # One that may pass may be the primary's.
    passing = (found for found in refusals if found is None or found.retry is not Retry.NEVER)
    return next(passing, refusals[0] if refusals else None)


def _attempts(text: str) -> Iterator[str]:
    """Yield what is said of each attempt to connect."""
    # Of several hosts or addresses psycopg lists each.
    for attempt in _ATTEMPT.split(text)[1:] or [text]:
        # libpq tries each with TLS, then without: what passes with TLS may be refused in the clear.
        for line in _LINE.split(attempt)[1:] or [attempt]:
            if _NO_TICKET not in line:
                yield line


def _as_line(text: str) -> str:
    return hide_passwords(" ".join(text.split()))


def _connection_refusal(text: str, address: Address) -> HeadraceError | None:
    """Return what the text of one attempt to connect means; None where the next attempt may succeed."""
    if _is_of_pooler(text.lower(), session_proxy=address.session_proxy):
        return pooler_error(address.place, text)
    for kind, pattern, cause, remedy in _REFUSALS:
        if re.search(pattern, text.lower()):
            return HeadraceError(kind, cause.format(place=address.place, text=text), remedy)
    return None


def _is_of_pooler(text: str, *, session_proxy: bool) -> bool:
    # PgBouncer refuses a parameter that a server takes.
    if "unsupported startup parameter" in text:
        return True
    # Quoted are names: of hosts, users and databases.
    return not session_proxy and _POOLER.search(_QUOTED_NAME.sub("", text)) is not None


def _reason(text: str) -> str:
    """Remove from libpq's text what our message says too: the address and the advice."""
    text = text.replace(_ADVICE, "").removeprefix("connection failed: ")
    return text if len(_PLACE.findall(text)) > 1 else _PLACE.sub("", text).rstrip(".? ")


_ADVICE = " Is the server running on that host and accepting TCP/IP connections?"
_ANSWERED = "The server, or a proxy before it, answers: wait, or change what it names."
_ANSWER = re.compile(r"failed: [A-Z]+: ")
"""What begins with a severity is the server's message, or a proxy's."""
_QUOTED_NAME = re.compile('"[^"]*"')
_POOLER = re.compile("pgbouncer|odyssey|rds proxy|tenant(/| or )user")
_ATTEMPT = re.compile(r"\n- host: .*, hostaddr: \S+: ")
_PLACE = re.compile(r'connection to server at "[^"]*"(?: \([^)]*\))?, port \d+ failed: ')
_LINE = re.compile(f"(?={_PLACE.pattern})")
_NO_TICKET = "GSSAPI security context"
"""Without a ticket of Kerberos libpq goes on as if it had not tried."""

_USER = "the database at {place} refused the user or the password"
_ACCESS = "the database at {place} does not let this user in: {text}"
_NAME = "there is no such database at {place}"
_TLS = "no TLS connection to the database at {place}: {text}"
_URL = "the connection URL for {place} is wrong: {text}"
_CORRECT = "Correct the connection URL, or set DATABASE_URL."
_UNTRUSTED = (
    "Give the CA that has signed the server's certificate in sslrootcert; renew the certificate if it has "
    "expired (libpq does not say), or correct this machine's clock."
)
_CORRECT_USER = (
    f"{_CORRECT} With tokens of a cloud: grant the role what they need; on AWS that is rds_iam, and for "
    "replication rds.iam_auth_for_replication = 1."
)
UNVERIFIED = "certificate verify failed"
"""OpenSSL's words for a server's certificate that sslrootcert does not know, or that has expired."""
_NO_TLS = (
    "does not support ssl|(root|server|client) certificate|certificate file|private key|weak sslmode"
    "|(ssl|tls)( connection is)? required|connection is insecure"
    "|ssl error: .*(protocol|cipher|handshake failure|too small)"
)
_CORRECT_TLS = (
    "Correct sslmode, sslrootcert, sslcert, sslkey, sslcrl or ssl_min_protocol_version in the connection URL."
)
_BAD_URL = (
    'connection is bad: invalid|bad value for|fatal: .*(parameter "|command-line argument)'
    "|invalid integer value|could not match [0-9]+ (host|port)|definition of service|service file"
)
_AUTH_METHOD = "the database at {place} wants the password in a way that is not allowed: {text}"
_SCRAM = (
    "On the server: password_encryption = 'scram-sha-256', ALTER ROLE … PASSWORD '…', and scram-sha-256 in "
    "pg_hba.conf"
)

# No SQLSTATE comes with a refused connection: only the text shows which errors are not retryable. The first
# pattern that is found in it, in lower case, decides. Where the server's messages are in another language, it
# is retried.
_REFUSALS: tuple[tuple[Kind, str, str, str], ...] = (
    (
        Kind.AUTHENTICATION,
        "method requirement.*cleartext",
        _AUTH_METHOD,
        f"{_SCRAM}; or connect with sslmode=verify-full and sslrootcert: then it may be in the clear.",
    ),
    (
        Kind.AUTHENTICATION,
        "method requirement.*hashed password",
        _AUTH_METHOD,
        f"{_SCRAM}; or allow MD5 with require_auth=md5 in the connection URL.",
    ),
    (Kind.AUTHENTICATION, "method requirement", _AUTH_METHOD, "Correct require_auth in the connection URL."),
    (
        Kind.AUTHENTICATION,
        "channel binding (check failed|negotiation error)",
        _ACCESS,
        "A proxy ends TLS. Give the server's own address or, for a proxy you trust, channel_binding=disable.",
    ),
    (
        Kind.AUTHENTICATION,
        "channel binding",
        _ACCESS,
        f"channel_binding=require needs TLS and a SCRAM password. {_SCRAM}; or channel_binding=prefer.",
    ),
    (
        Kind.AUTHENTICATION,
        "valid client certificate|certificate authentication failed",
        _ACCESS,
        "Set sslcert and sslkey in the URL, for this user.",
    ),
    (
        Kind.AUTHENTICATION,
        "alert (unknown ca|.*certificate)",
        _ACCESS,
        "Set another sslcert: it is missing, has expired or was revoked, or the server does not know its CA.",
    ),
    (Kind.AUTHENTICATION, "password authentication failed|no password supplied", _USER, _CORRECT_USER),
    (Kind.AUTHENTICATION, "auth(entication)? failed", _ACCESS, _CORRECT_USER),
    (Kind.AUTHENTICATION, r"pg_hba\.conf", _ACCESS, "Add a line to pg_hba.conf, or correct sslmode."),
    (Kind.AUTHENTICATION, 'role ".*does not exist|no such user', _ACCESS, _CORRECT),
    (Kind.AUTHENTICATION, 'role ".*not permitted to log in', _ACCESS, "ALTER ROLE … LOGIN, or another role."),
    (Kind.PRIVILEGE, "permission denied for database", _ACCESS, "GRANT CONNECT ON DATABASE … TO the role."),
    (Kind.CONFIG, 'database ".*does not exist|no such database', _NAME, _CORRECT),
    (Kind.CONFIG, UNVERIFIED, _TLS, _UNTRUSTED),
    (Kind.CONFIG, _NO_TLS, _TLS, _CORRECT_TLS),
    (Kind.CONFIG, _BAD_URL, _URL, _CORRECT),
    (
        Kind.CONNECTION,
        "session is (not )?read-only|in hot standby mode",
        "the server at {place} is not the primary now: {text}",
        _AWAIT_PRIMARY,
    ),
)

# The errors of a user's function whose body finds its names only under another search_path.
_UNKNOWN_NAME = frozenset({"42883", "42P01", "42704", "3F000"})
"""No such function, table, type or schema."""
_FUNCTION = re.compile(
    r'SQL function "(?P<name>.+?)" (?:during|statement)|function (?P<signature>.+?) line \d'
)

_REFUSED_VALUE = re.compile("22...|23514")
_REFUSED_ROW = re.compile("20000|21000|22...|23502|23514|2F005|38...|5400[01]|P000[1-4]|XX000")

_ASKED = re.compile("remote SQL command: |dblink connection")
"""What postgres_fdw and dblink add to an error of the server that they ask; it is not translated."""

_NAME_CLASSES = tuple("08 0A HV00N 25 26 28 3B 3D 3F 40 42 53 54 55 57 58 XX001 XX002".split())
"""Beginnings of SQLSTATEs whose messages quote statements, objects and limits, but no values of rows."""
_CAPITAL = re.compile("(?<!^)([A-Z])")


def is_refused_value(error: HeadraceError) -> bool:
    """Return whether a statement was refused for a value outside its type, domain or range."""
    return _REFUSED_VALUE.fullmatch(error.sqlstate) is not None


def is_refused_row(error: HeadraceError) -> bool:
    """Return whether a statement was refused for the content of some row.

    That is a value not of its type or domain, or out of range; several rows where one is expected; more text
    than one value may have, or deeper nesting; a user's function that raises an error (RAISE) or lacks a
    branch (no CASE, no RETURN); and an internal error, as extensions raise for values.
    """
    return _REFUSED_ROW.fullmatch(error.sqlstate) is not None


def database_error(error: psycopg.Error, url: str) -> HeadraceError:
    """Return the error of a failed statement: the server's own message and hint, never its parameters."""
    primary = error.diag.message_primary or " ".join(str(error).split())
    # A connection that breaks gives an OperationalError without a state.
    state = error.sqlstate if isinstance(error, psycopg.OperationalError) else str(error.sqlstate)
    found = _unknown_name_in_function(error, statement_error(state, primary, url))
    hint = " ".join((error.diag.message_hint or "").split())
    # The hint of a user's function may hold a value, as its message may.
    if (state or "").startswith(_NAME_CLASSES):
        found.remedy = found.remedy or hint
    return found


def _unknown_name_in_function(error: psycopg.Error, refusal: HeadraceError) -> HeadraceError:
    """Return the error that names the function whose body does not find a name; else `refusal`.

    Args:
        error: the server's error; that it is of a function's body is known from its `internal_query`.
        refusal: the error that it is turned into otherwise.
    """
    if error.sqlstate not in _UNKNOWN_NAME or error.diag.internal_query is None:
        return refusal
    found = _FUNCTION.search(error.diag.context or "")  # the innermost function is the first
    name = "" if found is None else (found["signature"] or found["name"])
    return HeadraceError(
        Kind.BINDING,
        f"the function {name or 'that is called'} does not find what its body names: {refusal.cause}",
        f"Run: ALTER FUNCTION {name or 'NAME'} SET search_path = SCHEMA, with the schema of those names. Or "
        "qualify the names in its body: Headrace reads with search_path = pg_catalog.",
    )


def other_server_error(error: psycopg.Error) -> OtherServerError | None:
    """Return the error of a statement that failed at another server; None where this one refuses it.

    What the other server refuses for good, as a value, is refused as if this one did.
    """
    state, text = error.sqlstate or "", error.diag.message_primary or ""
    is_asked = _ASKED.search(error.diag.context or "") is not None
    is_final = classify(state, text) in (ErrorClass.REFUSED, ErrorClass.READ_ONLY)
    is_of_other = state.startswith(("08", "HV")) or (is_asked and not is_final)
    # What ends this session is FATAL.
    if not is_of_other or error.diag.severity_nonlocalized != "ERROR":
        return None
    return OtherServerError(
        Kind.CONNECTION,
        f"a server that the database asks for this fails: {_without_values(state, text)}",
        "Mend that server, or how the database reaches it.",
        f"a server that the database asks for this fails: {text}",
    )


def statement_error(state: str | None, primary: str, url: str) -> HeadraceError:
    """Return the error of a failed statement, by its SQLSTATE.

    Args:
        state: the server's SQLSTATE; None where the connection broke without one.
        primary: the server's primary message.
        url: where the statement was sent.
    """
    state = state or ""
    meaning = classify(state, primary)
    passing = _passing_error(meaning, state, primary, parse_address(url).place)
    # Reading sessions are read-only: there a function of the user's tried to write.
    if passing is not None and meaning is not ErrorClass.READ_ONLY:
        return passing
    if state == "42501":
        return HeadraceError(Kind.PRIVILEGE, f"the database refuses: {primary}", _GRANT)
    # A prepared statement of our own is unknown, or there twice: sessions are shared.
    if state in ("26000", "42P05"):
        return pooler_error(parse_address(url).place, primary)
    return _refused(state, primary)


_REMEDIES = (
    (
        "^XX00[12]",
        "The server's files are damaged: find what with pg_amcheck; REINDEX an index, restore a table.",
    ),
    ("temp_file_limit", "ALTER ROLE … SET temp_file_limit, as a superuser, or in a service's parameters."),
)
"""What a refused statement's state, or a setting that its message names, asks for."""


def _refused(state: str, primary: str) -> HeadraceError:
    """Return the error of what the server refuses, without values of rows in its text."""
    remedy = next((text for word, text in _REMEDIES if re.search(word, f"{state} {primary}")), "")
    error = HeadraceError(
        Kind.DATABASE,
        f"the database says: {_without_values(state, primary)} (SQLSTATE {state})",
        remedy,
        detail=f"the database says: {primary} (SQLSTATE {state})",
    )
    error.sqlstate = state
    return error


def _without_values(state: str, primary: str) -> str:
    """Return the server's message where it quotes only names; else the name of the condition.

    The name is the one in PostgreSQL's manual; a function's own error has none.
    """
    # A message of other classes may quote a row's value, and logs are read by more people than rows.
    if state.startswith(_NAME_CLASSES) or classify(state, primary, log=True) is ErrorClass.TOO_LARGE:
        return primary
    try:
        condition = psycopg.errors.lookup(state).__name__
    except KeyError:
        return "an error that a function raises"
    return _CAPITAL.sub(r"_\1", condition).lower().rstrip("_")
