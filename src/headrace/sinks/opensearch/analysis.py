"""The analyzers and normalizers of Headrace's indexes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

TEXT = "headrace_text"
"""Analyzer for prose: words, without case and accents."""
CODE = "headrace_code"
"""Analyzer for short codes and names: `C-01234` is found as `c01234`, `C-01234` and `01234`."""
LOWERCASE = "headrace_lowercase"
"""Normalizer: one token without case and accents, for exact lookup and sorting."""

_SPLIT = "headrace_split"


def analysis(backend: Literal["builtin", "icu"], ranks: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    """Build the `analysis` settings; `ranks` names a normalizer for each list of enum variants."""
    icu = backend == "icu"
    fold = ["icu_folding"] if icu else ["lowercase", "asciifolding"]
    analyzers = {
        TEXT: {"type": "custom", "tokenizer": "icu_tokenizer" if icu else "standard", "filter": fold},
        CODE: {"type": "custom", "tokenizer": "whitespace", "filter": [_SPLIT, *fold, "flatten_graph"]},
    }
    split = {"type": "word_delimiter_graph", "preserve_original": True, "catenate_all": True}
    normalizers: dict[str, Any] = {LOWERCASE: {"type": "custom", "filter": fold}}
    filters: dict[str, Any] = {}
    for name, variants in ranks.items():
        filters[name] = {"type": "mapping", "mappings": rank_mappings(variants)}
        normalizers[name] = {"type": "custom", "char_filter": [name]}
    return {
        "analyzer": analyzers,
        "filter": {_SPLIT: split},
        "normalizer": normalizers,
        **({"char_filter": filters} if filters else {}),
    }


def rank_mappings(variants: Sequence[str]) -> list[str]:
    """Build rules that turn each variant into its rank, padded so that text order is rank order."""
    width = len(str(max(len(variants) - 1, 0)))
    return [f"{_escape(variant)} => {rank:0{width}}" for rank, variant in enumerate(variants)]


def _escape(text: str) -> str:
    """Write everything that the rule syntax could interpret as UTF-16 escapes."""
    return "".join(
        character if character.isascii() and character.isalnum() else _utf16(character) for character in text
    )


def _utf16(character: str) -> str:
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
