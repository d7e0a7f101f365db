"""What do the log's bytes mean? Pure: bytes to messages to columns."""
