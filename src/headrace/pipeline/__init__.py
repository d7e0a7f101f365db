"""The life of a deployment: from nothing to following, and to its end."""
