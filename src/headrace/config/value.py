"""Define the values of a deployment file that may stand in the environment."""

from __future__ import annotations

from typing import Annotated

from pydantic import Discriminator, Field, Tag

from headrace.config.file_model import FileModel
from headrace.config.secret import Secret


class EnvReference(FileModel):
    """`{ env = "NAME" }`: the value of an environment variable where the pipeline runs."""

    env: Annotated[str, Field(min_length=1, pattern=r"^[^=\x00]+$")]


def value_form(value: object) -> str | None:
    """Return the tag of the form that a value of the file has; None: neither."""
    if isinstance(value, str | Secret):
        return "<text>"
    return "<env>" if isinstance(value, dict | EnvReference) else None


Value = Annotated[
    Annotated[Secret, Tag("<text>")] | Annotated[EnvReference, Tag("<env>")], Discriminator(value_form)
]
"""A text, or a reference to an environment variable."""
