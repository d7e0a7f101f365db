"""Read the deployment file: the database, the sinks, the indexes; secrets are never printed."""
