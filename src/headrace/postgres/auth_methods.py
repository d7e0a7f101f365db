"""Decide which authentication methods a server may use. Pure.

libpq enforces `require_auth` before it sends anything. MD5 is allowed only where the user names it, a
password in the clear only where the server's certificate is verified.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.errors import HeadraceError, Kind


def is_verified(parameters: Mapping[str, str]) -> bool:
    """Return whether libpq connects only over TLS with a verified certificate."""
    return (
        parameters.get("sslmode") in {"verify-ca", "verify-full"}
        or parameters.get("sslrootcert") == "system"  # libpq then insists on verify-full
    )


def allowed_methods(parameters: Mapping[str, str]) -> str:
    """Return the value of `require_auth` for a connection, the user's own included.

    A list of allowed methods is kept as it is. Our forbidden methods are added to a list of forbidden ones.

    Raises:
        HeadraceError: CONFIG where `password` is allowed and the server is not verified.
    """
    methods = [method.strip() for method in parameters.get("require_auth", "").split(",") if method.strip()]
    verified = is_verified(parameters)
    if any(not method.startswith("!") for method in methods):
        if "password" in methods and not verified:
            raise HeadraceError(
                Kind.CONFIG,
                "require_auth allows a password in the clear, and the server's certificate is not verified",
                "Add sslmode=verify-full and sslrootcert, or take `password` out of require_auth.",
            )
        return ",".join(methods)
    forbidden = ["!md5"] if verified else ["!md5", "!password"]
    return ",".join(dict.fromkeys([*methods, *forbidden]))
