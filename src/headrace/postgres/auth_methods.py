"""Which ways to prove who we are does a server get? Pure.

libpq holds to `require_auth` before it sends anything: MD5 only where the user names it, a password in the
clear only where the server's certificate is verified.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.errors import HeadraceError, Kind


def is_verified(parameters: Mapping[str, str]) -> bool:
    """Whether libpq connects only over TLS with a certificate that it has verified."""
    return (
        parameters.get("sslmode") in {"verify-ca", "verify-full"}
        or parameters.get("sslrootcert") == "system"  # libpq then insists on verify-full
    )


def allowed_methods(parameters: Mapping[str, str]) -> str:
    """The value of `require_auth` for a connection with `parameters`, the user's own taken into it.

    A list of what is allowed is kept as it is; a list of what is forbidden gets ours.

    Raises:
        HeadraceError: CONFIG where `password` is allowed and the server is not verified.
    """
    given = [word.strip() for word in parameters.get("require_auth", "").split(",") if word.strip()]
    verified = is_verified(parameters)
    if any(not word.startswith("!") for word in given):
        if "password" in given and not verified:
            raise HeadraceError(
                Kind.CONFIG,
                "require_auth allows a password in the clear, and the server's certificate is not verified",
                "Add sslmode=verify-full and sslrootcert, or take `password` out of require_auth.",
            )
        return ",".join(given)
    forbidden = ["!md5"] if verified else ["!md5", "!password"]
    return ",".join(dict.fromkeys([*given, *forbidden]))
