"""Older servers that Headrace writes to, which run from jars like the embedded one."""

from __future__ import annotations

from pathlib import Path

from headrace.embedded.jars import OPENSEARCH_3, Release

_LISTS = Path(__file__).parent

OPENSEARCH_2 = Release("opensearch-2.19.1.0", OPENSEARCH_3.main, OPENSEARCH_3.settings, _LISTS)
ELASTICSEARCH_7 = Release(
    "elasticsearch-7.10.2.0",
    "org.codelibs.elasticsearch.runner.ElasticsearchClusterRunner",
    "elasticsearch.yml",
    _LISTS,
)
