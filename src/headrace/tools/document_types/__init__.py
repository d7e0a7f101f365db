"""Types of documents for programs that read them, in Python and TypeScript."""
