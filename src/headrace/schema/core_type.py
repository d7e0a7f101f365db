"""Tell which type a plain scalar has by YAML 1.2's core schema. Pure; it loads no YAML library."""

from __future__ import annotations

import re

_MAX_NUMBER_LENGTH = 400
_NULL = re.compile(r"~|null|Null|NULL|")
_BOOLEAN = re.compile(r"true|True|TRUE|false|False|FALSE")
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
SPECIAL = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


def core_type(text: str) -> str:
    """Return the type of the plain scalar `text`: `null`, `bool`, `int`, `float` or `str`."""
    if _NULL.fullmatch(text):
        return "null"
    if _BOOLEAN.fullmatch(text):
        return "bool"
    if len(text) <= _MAX_NUMBER_LENGTH and _INTEGER.fullmatch(text):
        return "int"
    if len(text) <= _MAX_NUMBER_LENGTH and (_FLOAT.fullmatch(text) or SPECIAL.fullmatch(text)):
        return "float"
    return "str"
