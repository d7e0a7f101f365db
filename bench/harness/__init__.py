"""What the benchmarks share: servers with a shop, tables and results, memory."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tests"))  # `support.driven_run` runs deployments
