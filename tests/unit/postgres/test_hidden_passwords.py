"""What is hidden in a message that may quote a connection string?"""

from __future__ import annotations

import psycopg
import pytest

from headrace.postgres.password import hide_passwords
from headrace.postgres.server_errors import connection_error


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("host=a password=r user=b", "host=a password=******** user=b"),
        ("password = 'it\\'s one' port=1", "password = ******** port=1"),
        ("password='never closed port=1", "password=********"),
        ("sslpassword=x&port=1", "sslpassword=********&port=1"),
        ("postgresql://me:a@b@host/db was refused", "postgresql://me:********@host/db was refused"),
        ("https://me@host:9200 was refused", "https://me@host:9200 was refused"),
        ('password authentication failed for user "r"', 'password authentication failed for user "r"'),
    ],
)
def test_only_the_fields_that_hold_a_password_are_hidden(text: str, shown: str) -> None:
    assert hide_passwords(text) == shown


def test_a_message_is_not_garbled_where_the_password_is_a_letter() -> None:
    """Each `r` of it became asterisks, which told the password to whoever could count."""
    said = psycopg.OperationalError("connection to server at 127.0.0.1 failed: Connection refused")
    error = connection_error(said, "postgresql://me:r@127.0.0.1/db")
    assert "connection to server at 127.0.0.1 failed: Connection refused" in error.cause
