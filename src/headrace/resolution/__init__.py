"""Resolution: find the documents that changed rows touch.

Changes in, document keys out: a superset, never a miss. `paths` finds the ways from each table to each root,
`render` builds one statement of each, `values` takes the old and new values out of a batch, and `Resolver`
runs them.
"""

from headrace.resolution.plan import RequiredColumns, ResolutionPlan, plan_resolution, required_columns
from headrace.resolution.resolver import Resolver, Touched

__all__ = ["RequiredColumns", "ResolutionPlan", "Resolver", "Touched", "plan_resolution", "required_columns"]
