"""Documents come out of an answer byte for byte, whatever they hold."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sinks.opensearch.documents import entries

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


SOURCES = st.dictionaries(st.text() | st.sampled_from(["_source", "docs", "found"]), VALUES)


@given(st.lists(st.tuples(st.text(), st.none() | SOURCES), max_size=4), st.booleans())
def test_each_entry_comes_with_its_document_as_it_stands(
    held: list[tuple[str, dict[str, object] | None]], ascii_: bool
) -> None:
    texts = [
        None if document is None else json.dumps(document, indent=1, ensure_ascii=ascii_)
        for _, document in held
    ]
    docs = [
        f'{{"_id":{json.dumps(id_)},"found":{"false" if text is None else f"""true,"_source":{text}"""}}}'
        for (id_, _), text in zip(held, texts, strict=True)
    ]
    found = list(entries(f'{{"docs":[{",".join(docs)}]}}'))
    assert [(entry["_id"], source) for entry, source in found] == [
        (id_, text) for (id_, _), text in zip(held, texts, strict=True)
    ]


def test_a_number_of_any_length_is_passed_over() -> None:
    document = f'{{"a": {"9" * 10_000}}}'
    [(_, source)] = entries(f'{{"docs":[{{"_source":{document}}}]}}')
    assert source == document


@pytest.mark.parametrize(
    "text", ["", "{", '{"docs":[', '{"docs":[{"_source":', '{"docs":[{"_source":{"a"}}]}', '{"docs":[{}}']
)
def test_what_is_no_answer_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        list(entries(text))
