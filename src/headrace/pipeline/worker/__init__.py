"""Run on executors: resolve changes, and assemble and write their documents."""
