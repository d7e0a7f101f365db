"""Serve orders to a running pipeline over HTTP, at the private address."""
