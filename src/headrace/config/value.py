"""Define values of several parts of a deployment file: names, and what may stand in the environment."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Discriminator, Field, Tag, ValidationInfo

from headrace.config.file_model import FileModel
from headrace.config.secret import Secret

_SLOT = re.compile(r"[a-z0-9_]{1,63}")


def _check_slot(value: str) -> str:
    if not _SLOT.fullmatch(value):
        raise ValueError("a slot's name has lower-case letters, digits and _ only, at most 63")
    return value


SlotName = Annotated[str, AfterValidator(_check_slot)]
PublicationName = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[^\x00]+$")]


def below_folder(file: Path, info: ValidationInfo) -> Path:
    """Return a path from the deployment file's folder as an absolute one, while such a file is loaded."""
    folder: Path = info.context["folder"] if info.context else Path()
    return folder / file


File = Annotated[Path, Field(strict=False), AfterValidator(below_folder)]
"""A file that is named from the deployment file's folder; the path is absolute once that is loaded."""


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
