"""Do the typed arguments of `Pipeline` and `Mirror` have the keys of the deployment file?"""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from headrace.config import keys
from headrace.config.deployment import Deployment, IndexEntry, OpenSearchSink, SourceConfig
from headrace.config.mirror import MirrorConfig, MirroredTables


@pytest.mark.parametrize(
    ("typed", "model", "own"),
    [
        (keys.SourceKeys, SourceConfig, set()),
        (keys.OpenSearchKeys, OpenSearchSink, set()),
        (keys.IndexKeys, IndexEntry, {"name"}),
        (keys.MirroredTablesKeys, MirroredTables, set()),
        (keys.PipelineKeys, Deployment, {"source", "sinks", "index"}),
        (keys.MirrorKeys, MirrorConfig, {"location", "tables"}),
    ],
)
def test_typed_arguments_have_the_keys_of_the_file(
    typed: type, model: type[BaseModel], own: set[str]
) -> None:
    """`own` are arguments of their own."""
    known = {field.alias or name for name, field in model.model_fields.items()}
    assert set(typed.__annotations__) == known - own
