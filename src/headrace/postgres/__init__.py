"""How is PostgreSQL spoken to? The only room that imports a database driver.

This package's own namespace stays empty, so that the pure `quoting` loads without a driver.
"""
