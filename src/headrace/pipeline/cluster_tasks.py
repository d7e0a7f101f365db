"""Make sure that the executors of a cluster can do the work of a deployment."""

from __future__ import annotations

from headrace.model.units import quantity
from headrace.pipeline.project import Project
from headrace.pipeline.worker.plan import Endpoints
from headrace.reporter import Reporter
from headrace.spark.cluster_check import ProbedSink, check_executors
from headrace.spark.session import LocalSpark

# Tasks at once; one of them is the stream's.
_FEW = 2


def check_cluster(spark: LocalSpark, project: Project, endpoints: Endpoints, report: Reporter) -> None:
    """Make sure that the cluster's executors can do the work.

    Raises:
        HeadraceError: as `check_executors`.
    """
    transforms = [spec.transform for spec in project.specs.values() if spec.transform is not None]
    modules = sorted({name.partition(":")[0] for name in transforms})
    # One of this process is reached by a relay, which the tasks open when they write.
    secondary: dict[str, ProbedSink] = {}
    for name, target in project.secondary.items():
        own = endpoints.of(target.key)
        if not target.is_stdout:
            secondary[name] = (target.kind, own.options if target.is_plain else own.sink)
    with report.working("asking the executors …"):
        grant = check_executors(
            spark.session, endpoints.database, [endpoints.sink], modules, secondary=secondary
        )
    executors, tasks = quantity(grant.executors, "executor"), quantity(grant.places, "task")
    report.done(f"the cluster gives {executors} for {tasks} at once")
    for reason in grant.away:
        report.warning(f"{reason}; what it lacks is deferred")
    if grant.places < _FEW:
        report.warning("live changes wait while an index is backfilled: there is one place for both")
