"""Whatever a name is made of: what is written with it is read as it, and a suggested name is one."""

from __future__ import annotations

import tomllib
from pathlib import Path

from hypothesis import assume, given
from hypothesis import strategies as st

from headrace.catalog import Catalog, Column, ForeignKey, Table, UniqueKey
from headrace.catalog.hints import Hints
from headrace.catalog.suggestion import Suggester
from headrace.config.deployment import folded_name
from headrace.config.suggestion import suggest_deployment, suggest_index_name, write_toml_text
from headrace.model.names import TableName
from headrace.schema.load import parse_schema
from headrace.schema.tree import ColumnField, JoinField
from headrace.schema.yaml_nodes import source_of
from headrace.status.protection import allows_host, leads_nowhere_else
from headrace.tools.convert.transform_file import DocumentStep, module_text
from headrace.tools.document_types import python
from headrace.tools.document_types.json_type import STRING, JsonObject, JsonProperty, TypeNames

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)


@given(TEXTS)
def test_toml_reads_the_text_that_was_written(text: str) -> None:
    assert tomllib.loads(f"a = {write_toml_text(text)}")["a"] == text


@given(st.lists(TEXTS, max_size=5))
def test_suggested_names_of_indexes_are_names_and_differ(texts: list[str]) -> None:
    taken: list[str] = []
    for text in texts:
        taken.append(suggest_index_name(text, taken))
    assert len(set(taken)) == len(texts)
    assert [folded_name(name) for name in taken] == taken
    found = tomllib.loads(suggest_deployment("postgresql:///x", {name: f"{name}.yml" for name in taken}))
    assert [index["name"] for index in found.get("index", [])] == taken


@given(TEXTS)
def test_a_converted_module_defines_its_functions_and_nothing_else(text: str) -> None:
    """What is written runs as it stands: no name or value became code."""
    step = DocumentStep((text,), "concat", ([text], text, text))
    module: dict[str, object] = {}
    exec(module_text("books", [step]), module)
    assert set(module) == {"__builtins__", "__doc__", "books", "concat", "each_document", "rows"}


@given(st.lists(TEXTS.filter(lambda text: "\0" not in text), min_size=1, max_size=4, unique=True))
def test_types_have_the_keys_of_the_documents(keys: list[str]) -> None:
    name = TypeNames().name("things", keys[0])
    rows = JsonObject(name, tuple(JsonProperty(key, STRING, key) for key in keys), keys[0])
    module: dict[str, object] = {}
    exec(python.render_module(keys[0], [rows]), module)
    assert list(getattr(module[name], "__annotations__", {})) == keys


@given(TEXTS, st.integers(1, 65535))
def test_no_name_passes_as_an_address(name: str, port: int) -> None:
    """Whatever somebody's own name is called below a domain, it leads elsewhere."""
    for host in (f"{name}.example", f"{name}.example:{port}"):
        assert not leads_nowhere_else(host)
        assert not allows_host(host, f"0.0.0.0:{port}", ())


NAMES = TEXTS.map(lambda text: text.replace("\0", "").encode()[:63].decode(errors="ignore")).filter(bool)


@given(st.lists(NAMES, min_size=3, max_size=3, unique=True), st.lists(NAMES, min_size=2, max_size=2))
def test_a_suggested_schema_file_reads_the_tables_that_it_was_made_of(
    names: list[str], comments: list[str]
) -> None:
    """What names and the database's comments hold is text to YAML: no key, no comment's end."""
    root, child, column = names
    tables = {
        TableName(root, title): _table(TableName(root, title), column, target)
        for title, target in ((root, None), (child, TableName(root, root)))
    }
    about = {(TableName(root, root), ""): comments[0], (TableName(root, root), column): comments[1]}
    text = Suggester(Catalog(tables), Hints(comments=about)).schema(TableName(root, root))
    assume("looks like a secret" not in text)  # such a column is left out
    spec = parse_schema(source_of(Path("it.schema.yml"), text), text, "it")
    assert (spec.table, spec.primary_key) == (TableName(root, root), (column,))
    assert [field.column for field in spec.fields if isinstance(field, ColumnField)] == [column]
    [join] = [field for field in spec.fields if isinstance(field, JoinField)]
    assert (join.table, join.primary_key) == (TableName(root, child), (column,))


def _table(name: TableName, column: str, target: TableName | None) -> Table:
    keys = () if target is None else (ForeignKey(("a" if column != "a" else "b",), target, (column,)),)
    columns = [column, *(key.columns[0] for key in keys)]
    return Table(
        name=name,
        oid=1,
        kind="r",
        columns=tuple(
            Column(own, "int8", "int8", "pg_catalog", "N", not_null=True, generated=False) for own in columns
        ),
        unique_keys=(UniqueKey("key", (column,), primary=True, not_null=True),),
        foreign_keys=keys,
        indexed=((column,),),
        replica_identity="default",
        identity_columns=(column,),
        row_estimate=1,
    )
