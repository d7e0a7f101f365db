"""From which schema is a generation followed that the files do not describe any more?

Its own, which was kept with it. Where the database or this version of Headrace does not bear that any more,
it is frozen: it stays as it is, and is no way back.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.assembly.transform import load_transform
from headrace.errors import HeadraceError
from headrace.pipeline.inspection import Inspection, inspect
from headrace.pipeline.project import Endpoints
from headrace.postgres.connection import Connection
from headrace.schema import IndexSpec, denormalised
from headrace.sinks.opensearch import Generations, GenerationState, PipelineState

_DETERMINING = {
    "types": "a column that it reads is another one now",
    "pipeline": "the sink's ingest pipeline is another one now",
    "transform_code": "its transform's code is another now",
}
"""What must be as it was, beside the schema; the rest is about the mapping, which it has."""


@dataclass(frozen=True, slots=True)
class _Kept:
    spec: IndexSpec
    determinants: Mapping[str, Any]


def inspect_retained(
    inspection: Inspection,
    endpoints: Endpoints,
    connection: Connection,
    generations: Generations,
    state: PipelineState,
) -> tuple[Inspection, PipelineState]:
    """The inspection with what is kept beside the files' indexes, and the state with what cannot be: frozen.

    Raises:
        HeadraceError: CONNECTION, SINK_UNREACHABLE and what else either side does not bear.
    """
    kept, frozen = _read(inspection, generations, state)
    plain = inspection
    while kept:
        specs = {name: one.spec for name, one in kept.items()}
        project = dataclasses.replace(plain.project, kept={**plain.project.kept, **specs})
        inspection = inspect(project, endpoints, connection)
        wrong = _unfit(inspection, kept)
        if not wrong and not inspection.errors():
            break
        if not wrong:
            wrong = dict.fromkeys(kept, inspection.errors()[0].cause)
        frozen |= wrong
        kept = {name: one for name, one in kept.items() if name not in wrong}
        inspection = plain
    marked = [
        dataclasses.replace(one, frozen=frozen[one.generation])
        for one in state.generations
        if one.generation in frozen
    ]
    return inspection, state.changed(*marked)


def _read(
    inspection: Inspection, generations: Generations, state: PipelineState
) -> tuple[dict[str, _Kept], dict[str, str]]:
    """The schemas of those that are followed from their own, and why others cannot be."""
    hashes = inspection.hashes()
    found: dict[str, _Kept] = {}
    frozen: dict[str, str] = {}
    for one in state.generations:
        if not one.followed or one.index not in hashes or one.hash == hashes[one.index]:
            continue
        schema = _schema(generations, one)
        if schema is None:
            continue
        try:
            known = json.loads(schema)
            spec = denormalised(known, one.generation)
            if spec.transform is not None:
                load_transform(spec.transform)
            found[one.generation] = _Kept(spec, known["extra"])
        except HeadraceError as error:
            frozen[one.generation] = error.cause
        except (ValueError, KeyError, TypeError):
            frozen[one.generation] = (
                "an earlier version of Headrace made it, which kept no schema to follow it from"
            )
    return found, frozen


def _schema(generations: Generations, one: GenerationState) -> str | None:
    """As it was kept; None where the generation has gone."""
    there = {(made.index, made.uuid): made for made in generations.existing(one.index)}
    made = there.get((one.generation, one.uuid))
    return None if made is None else made.schema


def _unfit(inspection: Inspection, kept: Mapping[str, _Kept]) -> dict[str, str]:
    wrong = dict(inspection.unfit)
    for name, one in kept.items():
        if name in wrong:
            continue
        now = inspection.project.determinants(one.spec, inspection.types(name))
        now = json.loads(json.dumps(now))
        different = [why for key, why in _DETERMINING.items() if now.get(key) != one.determinants.get(key)]
        if different:
            wrong[name] = different[0]
    return wrong
