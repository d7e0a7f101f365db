"""Found by Spark under its own name."""
