"""Follow generations whose schema no file holds any more, by the schema that was saved with them."""

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
from headrace.schema.normal import denormalised
from headrace.schema.tree import IndexSpec

# What must be unchanged beside the schema. Other determinants are about the mapping, which is fixed.
_DETERMINING = {
    "pipeline": "the sink's ingest pipeline changed",
    "transform_code": "the code of its transform changed",
}


@dataclass(frozen=True, slots=True)
class Retained:
    """The schema of a generation as it was saved with its index, and what else determined its documents."""

    spec: IndexSpec
    determinants: Mapping[str, Any]
    target: SinkTarget

    @classmethod
    def read(cls, schema: str, generation: str, target: SinkTarget) -> Retained:
        """Read the schema that was saved with a generation.

        Raises:
            HeadraceError: SCHEMA, TRANSFORM: this version cannot follow it.
        """
        try:
            saved = json.loads(schema)
            spec = denormalised(saved, generation)
            if spec.transform is not None:
                load_transform(spec.transform)
            return cls(spec, saved["extra"], target)
        except (ValueError, KeyError, TypeError) as error:
            raise HeadraceError(
                Kind.SCHEMA, "an earlier version of Headrace made it, which kept no schema to follow it from"
            ) from error


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
    plain, unfit, left = inspection, dict[str, str](), dict(retained)
    # Without those that are wrong, again: an error of one generation must not be that of all.
    while left:
        specs = {id_: generation.spec for id_, generation in left.items()}
        inspection = inspect(dataclasses.replace(plain.project, retained=specs), endpoints, connection)
        wrong = _why_unfit(inspection, left)
        if not wrong and not inspection.errors(reseeds=True):
            return inspection, unfit
        wrong = wrong or dict.fromkeys(left, inspection.errors(reseeds=True)[0].cause)
        unfit |= wrong
        left = {id_: generation for id_, generation in left.items() if id_ not in wrong}
    return plain, unfit


def _why_unfit(inspection: Inspection, retained: Mapping[str, Retained]) -> dict[str, str]:
    wrong = dict(inspection.unfit)
    for id_, generation in retained.items():
        if id_ in wrong:
            continue
        now = generation.target.determinants(generation.spec, inspection.types(id_))
        now, before = json.loads(json.dumps(now)), generation.determinants
        different = [why for key, why in _DETERMINING.items() if now.get(key) != before.get(key)]
        if now.get("types") != before.get("types"):
            wrong[id_] = describe_changed_types(before.get("types") or [], now.get("types") or [])
        elif different:
            wrong[id_] = different[0]
    return wrong
