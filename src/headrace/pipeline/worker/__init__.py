"""What runs on executors: changes are resolved, documents are assembled and written."""
