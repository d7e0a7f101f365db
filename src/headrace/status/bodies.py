"""Read the JSON body of a request, and check it against what the page takes."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import ClientDisconnect, Request

from headrace.status.refusal import refuse

MOST_BYTES = 64 * 1024
# For a whole body.
PATIENCE_SECONDS = 10.0
_JSON = "application/json"


class NoOptions(BaseModel):
    """The body of a request that takes nothing: empty, or `{}`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


_Body = TypeVar("_Body", bound=NoOptions)


async def read_body(request: Request, model: type[_Body], most: int = MOST_BYTES) -> _Body:
    """Read and check a body of at most so many bytes; an empty one is an empty object.

    Raises:
        Refusal: it is too large, too slow, no JSON, or not what the page takes.
    """
    data = await _read(request, most)
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if data and (media_type != _JSON or request.headers.get("content-encoding")):
        cause = "the body is not said to be plain JSON"
        remedy = f"Send it as `Content-Type: {_JSON}`, without a Content-Encoding."
        raise refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "wrong_media_type", cause, remedy)
    try:
        return model.model_validate_json(data or b"{}")
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        cause = f"the body is wrong: {place[:100] + ': ' if place else ''}{first['msg']}"
        remedy = f"It takes {', '.join(model.model_fields) or 'nothing'}."
        raise refuse(HTTPStatus.UNPROCESSABLE_ENTITY, "malformed", cause, remedy) from None


async def _read(request: Request, most: int) -> bytes:
    cause = f"the body is larger than {most} bytes"
    too_large = refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_large", cause, Connection="close")
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > most:
        raise too_large
    data = bytearray()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for part in request.stream():
                data += part
                if len(data) > most:
                    raise too_large
    except (TimeoutError, ClientDisconnect):
        raise refuse(
            HTTPStatus.REQUEST_TIMEOUT, "too_slow", "the body did not come in time", Connection="close"
        ) from None
    return bytes(data)
