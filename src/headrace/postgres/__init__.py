"""Talk to PostgreSQL; the only room that imports a database driver.

The package imports nothing itself, so that the pure `quoting` loads without a driver.
"""
