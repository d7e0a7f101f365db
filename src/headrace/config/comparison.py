"""Compare two deployment files key by key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from headrace.config.deployment import Deployment


def differing_keys(before: Deployment, now: Deployment) -> Iterator[str]:
    """Yield the keys whose values differ, as `section.key`; no values, which may be secrets."""
    yield from _differences(before, now, "")


def _differences(before: object, now: object, place: str) -> Iterator[str]:
    if isinstance(before, BaseModel) and type(before) is type(now) and isinstance(now, BaseModel):
        before, now = _fields(before), _fields(now)
    if not (isinstance(before, dict) and isinstance(now, dict)):
        if before != now:
            yield place
        return
    for key in dict.fromkeys((*before, *now)):
        inner = f"{place}.{key}" if place else key
        # A sink or a parameter may be in one of the files only.
        if key in before and key in now:
            yield from _differences(before[key], now[key], inner)
        else:
            yield inner


def _fields(model: BaseModel) -> dict[str, Any]:
    """Return the values of a model by key, also of those that its class does not name."""
    named = {name: getattr(model, name) for name in type(model).model_fields}
    return {**named, **(model.model_extra or {})}
