"""How does the work reach Spark? The only room that imports PySpark."""
