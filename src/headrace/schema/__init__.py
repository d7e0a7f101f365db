"""Read schema files into typed trees; each error names file and line."""
