"""The common form of everything that a deployment file holds."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class FileModel(BaseModel):
    """A table of a deployment file: unknown keys are refused, values are never shown in errors."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, hide_input_in_errors=True, populate_by_name=False
    )
