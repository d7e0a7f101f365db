"""Each example of the page of field types gives the document that stands below it."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

from builder.fields import EXAMPLES, ROWS, schema_file
from headrace.postgres.connection import connect, execute
from headrace.schema.language import TAGS
from headrace.schema.load import load_schema
from headrace.tools.preview import open_preview


def test_every_type_has_an_example_that_gives_its_document(database: str, tmp_path: Path) -> None:
    assert EXAMPLES.keys() == set(TAGS)
    with connect(database) as connection:
        execute(connection, "SET search_path = public")
        for statement in filter(str.strip, ROWS.split(";")):
            execute(connection, statement)
    for tag, example in EXAMPLES.items():
        file = tmp_path / f"{tag}.schema.yml"
        file.write_text(schema_file(example))
        with open_preview(database, load_schema(file, "users")) as preview:
            document = preview.document("1")
        assert document.body is not None
        assert exact(document.body.decode()) == exact(example["document"]), tag


def exact(text: str) -> object:
    """Return the values of a JSON text, with every digit and in its order."""
    return json.loads(text, parse_float=Decimal, object_pairs_hook=list)
