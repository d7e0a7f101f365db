"""Run a real Elasticsearch 8 or 9 for tests, from its jars in the Maven repository."""

from support.elasticsearch.node import ELASTICSEARCH_8, ELASTICSEARCH_9, ElasticsearchNode, elasticsearch

__all__ = ["ELASTICSEARCH_8", "ELASTICSEARCH_9", "ElasticsearchNode", "elasticsearch"]
