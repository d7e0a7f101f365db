"""What the benchmarks share: servers with a shop, tables and results, memory."""
