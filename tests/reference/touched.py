"""All documents that a batch touches, by index, in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.model.changes import Key
from headrace.resolution import Touched


@dataclass
class Gathered:
    """The keys of one index, each once, and whether every document that exists counts too."""

    keys: list[Key] = field(default_factory=list)
    everything: bool = False


def gathered(touched: Touched) -> dict[str, Gathered]:
    """By index; one that nothing touches is absent."""
    found = {index: Gathered(everything=True) for index in touched.everything}
    for index, keys in touched.keys:
        if keys:
            one = found.setdefault(index, Gathered())
            one.keys = list(dict.fromkeys([*one.keys, *keys]))
    return found
