"""What people use beside a run: designer, types of documents, converters, preview, cost, checks, the demo."""
