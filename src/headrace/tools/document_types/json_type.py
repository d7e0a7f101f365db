"""Describe the JSON of documents: the types that are rendered as Python and TypeScript. Pure values."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class JsonScalar:
    """A single value; `any` is any JSON at all."""

    name: Literal["null", "boolean", "integer", "number", "string", "any"]


@dataclass(frozen=True, slots=True)
class JsonConstant:
    """One value that is always the same."""

    value: str | int | bool


@dataclass(frozen=True, slots=True)
class JsonChoice:
    """One of some texts, under a name."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JsonList:
    """A list."""

    element: JsonType


@dataclass(frozen=True, slots=True)
class JsonMap:
    """An object whose keys are data."""

    value: JsonType


@dataclass(frozen=True, slots=True)
class JsonProperty:
    """A key of an object, and the type of its value."""

    key: str
    type: JsonType
    description: str = ""


@dataclass(frozen=True, slots=True)
class JsonObject:
    """An object with known keys, under a name.

    Attributes:
        is_whole: whether every key is always there.
    """

    name: str
    properties: tuple[JsonProperty, ...]
    description: str = ""
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class JsonUnion:
    """A value of one of these types; `union` makes it."""

    types: tuple[JsonType, ...]


JsonType = JsonScalar | JsonConstant | JsonChoice | JsonList | JsonMap | JsonObject | JsonUnion
Definition = JsonObject | JsonChoice
"""The types that have a name."""

NULL = JsonScalar("null")
BOOLEAN = JsonScalar("boolean")
INTEGER = JsonScalar("integer")
NUMBER = JsonScalar("number")
STRING = JsonScalar("string")
ANY = JsonScalar("any")

POINT = JsonObject(
    "GeoPoint", (JsonProperty("lat", NUMBER), JsonProperty("lon", NUMBER)), "A place on Earth."
)


def union(*types: JsonType) -> JsonType:
    """Return the type of a value that has one of `types`."""
    parts = (type_.types if isinstance(type_, JsonUnion) else (type_,) for type_ in types)
    distinct = list(dict.fromkeys(itertools.chain.from_iterable(parts)))
    if ANY in distinct:
        return ANY
    # Every whole number is a number.
    if NUMBER in distinct and INTEGER in distinct:
        distinct.remove(INTEGER)
    distinct.sort(key=lambda type_: type_ == NULL)
    return distinct[0] if len(distinct) == 1 else JsonUnion(tuple(distinct))


def definitions(types: Iterable[JsonType]) -> list[Definition]:
    """Return the named types that `types` consist of, each after those that it consists of itself."""
    return list(dict.fromkeys(found for type_ in types for found in _definitions(type_)))


def _definitions(type_: JsonType) -> Iterator[Definition]:
    match type_:
        case JsonList(inner) | JsonMap(inner):
            yield from _definitions(inner)
        case JsonUnion(types):
            for alternative in types:
                yield from _definitions(alternative)
        case JsonObject(properties=properties):
            for member in properties:
                yield from _definitions(member.type)
            yield type_
        case JsonChoice():
            yield type_
        case _:
            pass


@dataclass(frozen=True, slots=True)
class TypeSyntax:
    """How a language writes types.

    Attributes:
        scalars: its names of the types of single values, where they are other ones than here.
        list: a list, with {} in place of the elements' type.
        map: an object whose keys are data, with {} in place of the values' type.
        constant: writes the type of a value that is always the same.
    """

    scalars: Mapping[str, str]
    list: str
    map: str
    constant: Callable[[str | int | bool], str]

    def write(self, type_: JsonType) -> str:
        """Write a type; one that has a name is defined elsewhere."""
        match type_:
            case JsonScalar(name):
                return self.scalars.get(name, name)
            case JsonConstant(value):
                return self.constant(value)
            case JsonList(element):
                return self.list.format(self.write(element))
            case JsonMap(value):
                return self.map.format(self.write(value))
            case JsonUnion(types):
                return " | ".join(map(self.write, types))
            case JsonObject(name=name) | JsonChoice(name=name):
                return name


class TypeNames:
    """Gives every type a name of its own, in the order of the requests."""

    def __init__(self) -> None:
        # The modules use these names themselves.
        self._taken = {POINT.name, "Any", "Array", "Literal", "Record", "TypedDict"}

    def name(self, *words: str) -> str:
        """Return `words` as one name: `orders`, `unitPrice` becomes `OrdersUnitPrice`."""
        parts = [part for word in words for part in re.split(r"[\W_]+", word) if part]
        joined = unicodedata.normalize("NFKC", "".join(part[0].upper() + part[1:] for part in parts))
        base = "".join(character for character in joined if f"T{character}".isidentifier())
        base = base if base.isidentifier() else f"T{base}"
        name, number = base, 1
        while name in self._taken:
            number += 1
            name = f"{base}{number}"
        self._taken.add(name)
        return name
