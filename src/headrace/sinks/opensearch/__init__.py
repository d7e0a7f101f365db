"""How do document operations become bulk requests to OpenSearch or Elasticsearch?"""
