"""Read tables as of one exported snapshot, in parts that can be read in parallel."""
