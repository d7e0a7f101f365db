"""Read the tokens of the private address, and tell whose token a request has."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.config.control import ControlToken, Scope
from headrace.config.deployment import Deployment
from headrace.config.text_files import read_text
from headrace.errors import ErrorGroup, HeadraceError, Kind
from headrace.postgres.password import run_password_command

_SHORTEST = 16
# What a Bearer header can carry (RFC 6750).
_FORM = re.compile(r"[A-Za-z0-9._~+/-]+=*")


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """Who has a token: a name, and what the token is for."""

    name: str
    scope: Scope


class Tokens:
    """The tokens of one deployment, kept as digests."""

    def __init__(self, tokens: Sequence[tuple[str, TokenHolder]]) -> None:
        # As digests: they have one length, as a comparison in constant time needs.
        self._holders = [(_digest(token), holder) for token, holder in tokens]

    def find(self, given: str) -> TokenHolder | None:
        """Return whose token this is; None where it is nobody's.

        Every token is compared, each in constant time, so that the time says nothing about them.
        """
        digest, found = _digest(given), None
        for known, holder in self._holders:
            if hmac.compare_digest(known, digest):
                found = holder
        return found


def read_tokens(deployment: Deployment) -> Tokens:
    """Read every token of the deployment's `[control]`.

    Raises:
        HeadraceError: CONFIG: there is none. PASSWORD_COMMAND.
        ErrorGroup: CONFIG: what cannot be read, is too short, cannot be sent, or is there twice.
    """
    if not deployment.control.tokens:
        raise HeadraceError(
            Kind.CONFIG,
            f"{deployment.file}: the private address has no token, and is not served without one",
            "Add [[control.tokens]] with a name, a scope, and a token_file, token_env or token_command.",
        )
    tokens: dict[str, TokenHolder] = {}
    errors: list[HeadraceError] = []
    for entry in deployment.control.tokens:
        try:
            token = _read(deployment, entry)
            _check(deployment, entry, token)
        except HeadraceError as error:
            errors.append(error)
            continue
        if token in tokens:
            errors.append(_wrong(deployment, entry, f"is also the token of {tokens[token].name!r}"))
        tokens[token] = TokenHolder(entry.name, entry.scope)
    if errors:
        raise ErrorGroup(errors)
    return Tokens(list(tokens.items()))


def _read(deployment: Deployment, entry: ControlToken) -> str:
    if entry.token_file is not None:
        return read_text(entry.token_file, f"the token file of {entry.name!r}", Kind.CONFIG).rstrip("\r\n")
    if entry.token_env is not None:
        value = deployment.environment.get(entry.token_env)
        if value is None:
            raise HeadraceError(
                Kind.CONFIG,
                f"{deployment.file}: the token of {entry.name!r} is the environment variable "
                f"{entry.token_env}, which is not set",
                f"Set {entry.token_env}.",
            )
        return value.reveal()
    assert entry.token_command is not None
    return run_password_command(entry.token_command, what="token")


def _check(deployment: Deployment, entry: ControlToken, token: str) -> None:
    if len(token) < _SHORTEST:
        raise _wrong(deployment, entry, f"has fewer than {_SHORTEST} characters")
    if not _FORM.fullmatch(token):
        raise _wrong(deployment, entry, "has characters that no Bearer header carries")


def _wrong(deployment: Deployment, entry: ControlToken, how: str) -> HeadraceError:
    cause = f"{deployment.file}: the token of {entry.name!r} {how}"
    return HeadraceError(Kind.CONFIG, cause, "Make one with `openssl rand -hex 32`.")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
