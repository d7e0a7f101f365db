"""What do tests and the demo run against? Embedded servers, the shop database, a memory sink."""
