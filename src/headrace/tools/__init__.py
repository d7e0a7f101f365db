"""What people use beside a run: checks, verification, the quarantine, designer, converters, the demo."""
