"""The demo: a shop, what happens in it, and what its documents must be then."""
