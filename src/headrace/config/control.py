"""Define what a deployment file says of the private address: who may give orders, and how it is reached."""

from __future__ import annotations

import shlex
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from headrace.config.file_model import FileModel
from headrace.config.value import File

Scope = Literal["read", "operate"]
"""What a token is for: look, or give orders too."""


def command_words(value: object) -> object:
    """Return the words of a command that is a text or a list; anything else unchanged.

    Raises:
        ValueError: it has no first word, or its quotes are not closed.
    """
    words = shlex.split(value) if isinstance(value, str) else value
    if isinstance(words, list | tuple) and not (words and words[0]):
        raise ValueError('must be a command, as in ["program", "word"]')
    return tuple(words) if isinstance(words, list) else words


HostName = Annotated[str, Field(pattern=r"^[^\s/@]+$")]
"""A value of the Host header: `HOST:PORT`, or `HOST` with any port."""


class ControlToken(FileModel):
    """A token of the private address; the file says only where it is read from, with paths relative to it."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$")]
    """Who has it; each order is logged with this name, and `/status` shows it."""
    scope: Scope = "read"
    """`read` only looks, `operate` gives orders."""
    token_file: File | None = None
    """A file that holds the token alone."""
    token_env: Annotated[str, Field(min_length=1, pattern=r"^[^=\x00]+$")] | None = None
    """The environment variable that holds it."""
    token_command: Annotated[tuple[str, ...] | None, BeforeValidator(command_words)] = None
    """A command that prints it, run without a shell."""

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if sum(each is not None for each in (self.token_file, self.token_env, self.token_command)) != 1:
            raise ValueError("needs exactly one of token_file, token_env and token_command")
        return self


def _check_names(tokens: tuple[ControlToken, ...]) -> tuple[ControlToken, ...]:
    if len({token.name for token in tokens}) < len(tokens):
        raise ValueError("two tokens have the same name")
    return tokens


class Control(FileModel):
    """The private address: its tokens, the names that it is asked by, its certificate."""

    tokens: Annotated[tuple[ControlToken, ...], Field(strict=False), AfterValidator(_check_names)] = ()
    """Without any, nothing listens at the private address."""
    allowed_hosts: Annotated[tuple[HostName, ...], Field(strict=False)] = ()
    """Values of the Host header besides the address itself: `HOST:PORT`, or `HOST` with any port."""
    certificate_file: File | None = None
    """A PEM file with the certificate and its chain; with `key_file` it makes the address HTTPS."""
    key_file: File | None = None
    """The PEM file with the certificate's key."""

    @model_validator(mode="after")
    def _has_both_files(self) -> Self:
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("certificate_file and key_file belong together")
        return self
