"""Which Java runs the embedded OpenSearch? The production run asks the same: see `config.java`."""

from headrace.config.java import find_java

__all__ = ["find_java"]
