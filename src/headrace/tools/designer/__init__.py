"""Choose on a page what a document holds, with the schema file and a real document beside it."""
