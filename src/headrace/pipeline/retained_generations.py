"""Follow retained generations by the schema that was saved with them, when the files have another one.

Where that schema does not fit the database or this version of Headrace any more, the generation is frozen. A
frozen generation is not updated, and a rollback to it is not possible.
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
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.connection import Connection
from headrace.schema import IndexSpec, denormalised
from headrace.sinks.opensearch import Generations, GenerationState, PipelineState

_DETERMINING = {
    "types": "a column that it reads is another one now",
    "pipeline": "the sink's ingest pipeline is another one now",
    "transform_code": "its transform's code is another now",
}
"""What must be unchanged beside the schema. Other determinants are about the mapping, which is fixed."""


@dataclass(frozen=True, slots=True)
class _Retained:
    spec: IndexSpec
    determinants: Mapping[str, Any]


def inspect_retained(
    inspection: Inspection,
    endpoints: Endpoints,
    connection: Connection,
    generations: Generations,
    state: PipelineState,
) -> tuple[Inspection, PipelineState]:
    """Add the retained generations to an inspection; freeze those that cannot be followed in the state.

    Raises:
        HeadraceError: CONNECTION, SINK_UNREACHABLE and other errors of either server.
    """
    retained, frozen = _read(inspection, generations, state)
    plain = inspection
    while retained:
        specs = {name: generation.spec for name, generation in retained.items()}
        project = dataclasses.replace(plain.project, retained={**plain.project.retained, **specs})
        inspection = inspect(project, endpoints, connection)
        wrong = _unfit(inspection, retained)
        if not wrong and not inspection.errors():
            break
        if not wrong:
            wrong = dict.fromkeys(retained, inspection.errors()[0].cause)
        frozen |= wrong
        retained = {name: entry for name, entry in retained.items() if name not in wrong}
        inspection = plain
    marked = [
        dataclasses.replace(generation, frozen=frozen[generation.generation])
        for generation in state.generations
        if generation.generation in frozen
    ]
    return inspection, state.changed(*marked)


def _read(
    inspection: Inspection, generations: Generations, state: PipelineState
) -> tuple[dict[str, _Retained], dict[str, str]]:
    """Read the schemas of retained generations; return also why others cannot be followed."""
    hashes = inspection.hashes()
    retained: dict[str, _Retained] = {}
    frozen: dict[str, str] = {}
    for generation in state.generations:
        if (
            not generation.followed
            or generation.index not in hashes
            or generation.hash == hashes[generation.index]
        ):
            continue
        schema = _schema(generations, generation)
        if schema is None:
            continue
        try:
            saved = json.loads(schema)
            spec = denormalised(saved, generation.generation)
            if spec.transform is not None:
                load_transform(spec.transform)
            retained[generation.generation] = _Retained(spec, saved["extra"])
        except HeadraceError as error:
            frozen[generation.generation] = error.cause
        except (ValueError, KeyError, TypeError):
            frozen[generation.generation] = (
                "an earlier version of Headrace made it, which kept no schema to follow it from"
            )
    return retained, frozen


def _schema(generations: Generations, generation: GenerationState) -> str | None:
    """Return the schema that was saved with a generation; None where the generation does not exist."""
    existing = {(index.index, index.uuid): index for index in generations.existing(generation.index)}
    index = existing.get((generation.generation, generation.uuid))
    return None if index is None else index.schema


def _unfit(inspection: Inspection, retained: Mapping[str, _Retained]) -> dict[str, str]:
    wrong = dict(inspection.unfit)
    for name, generation in retained.items():
        if name in wrong:
            continue
        now = inspection.project.determinants(generation.spec, inspection.types(name))
        now = json.loads(json.dumps(now))
        different = [
            why for key, why in _DETERMINING.items() if now.get(key) != generation.determinants.get(key)
        ]
        if different:
            wrong[name] = different[0]
    return wrong
