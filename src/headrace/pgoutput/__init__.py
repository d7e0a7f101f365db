"""Decode the bytes of `pgoutput` to messages and to columns. Pure."""
