"""Follow generations whose schema no file holds any more, by the schema that the state keeps of them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.assembly.transform import load_transform
from headrace.catalog.fingerprint import describe_changed_types
from headrace.errors import HeadraceError, Kind
from headrace.pipeline.inspection import Inspection, inspect
from headrace.pipeline.sink_target import SinkTarget
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.connection import Connection
from headrace.schema.normal import denormalised, unpack
from headrace.schema.tree import IndexSpec
from headrace.state import GenerationState

# What must be unchanged beside the schema. Other determinants are about the mapping, which is fixed.
_DETERMINING = {
    "pipeline": "the sink's ingest pipeline changed",
    "transform_code": "the code of its transform changed",
    "sink": "its sink is another one",
}


@dataclass(frozen=True, slots=True)
class Retained:
    """The schema of a generation as the state keeps it, and what else determined its documents."""

    spec: IndexSpec
    determinants: Mapping[str, Any]
    target: SinkTarget

    @classmethod
    def read(cls, generation: GenerationState, target: SinkTarget) -> Retained:
        """Read what the state keeps of a generation.

        Raises:
            HeadraceError: SCHEMA, TRANSFORM: this version cannot follow it.
        """
        if not generation.schema:
            raise HeadraceError(Kind.SCHEMA, "an earlier version of Headrace made it, which kept no schema")
        saved = unpack(generation.schema)
        spec = denormalised(saved, generation.generation)
        if spec.transform is not None:
            load_transform(spec.transform)
        return cls(spec, saved["extra"], target)


def inspect_retained(
    inspection: Inspection, endpoints: Endpoints, connection: Connection, retained: Mapping[str, Retained]
) -> tuple[Inspection, dict[str, str]]:
    """Add generations to an inspection; return also why others of them cannot be followed.

    Args:
        inspection: of the files, which fit the database.
        endpoints: of the deployment.
        connection: to the database.
        retained: by the generation's id.

    Raises:
        HeadraceError: as for `inspect`.
    """
    unfit: dict[str, str] = {}
    # One after the other: an error of one generation must not be that of all.
    for id_, generation in retained.items():
        specs = {**inspection.project.retained, id_: generation.spec}
        project = dataclasses.replace(inspection.project, retained=specs)
        wider = inspect(project, endpoints, connection)
        errors = wider.errors()
        if why := errors[0].cause if errors else _why_different(generation, wider.types(id_), endpoints):
            unfit[id_] = why
        else:
            inspection = wider
    return inspection, unfit


def _why_different(generation: Retained, types: object, endpoints: Endpoints) -> str:
    """Return what else than its schema would make other documents now; empty where nothing would."""
    target = generation.target
    # In JSON's types, as what was saved is.
    now = json.loads(json.dumps(target.determinants(generation.spec, types) | target.place(endpoints)))
    before = generation.determinants
    if now.get("types") != before.get("types"):
        return describe_changed_types(before.get("types") or [], now.get("types") or [])
    return next((why for key, why in _DETERMINING.items() if now.get(key) != before.get(key)), "")
