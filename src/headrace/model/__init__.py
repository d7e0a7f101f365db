"""Values that all packages share: positions, table names, changes, document operations.

Pure: no input or output, and no import from other packages.
"""
