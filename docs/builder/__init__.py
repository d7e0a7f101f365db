"""Build the site of the documentation."""
