"""Check, before a run begins, that a Spark cluster's executors can do the work."""

from __future__ import annotations

from headrace.pipeline.project import OPENSEARCH, Project
from headrace.pipeline.worker.plan import Endpoints
from headrace.reporter import Reporter
from headrace.spark.cluster_check import ProbedSink, check_executors
from headrace.spark.session import LocalSpark

_FEW = 2
"""Tasks at once; one of them is the stream's."""


def check_cluster(spark: LocalSpark, project: Project, endpoints: Endpoints, report: Reporter) -> None:
    """Make sure that the cluster's executors can do the work.

    Raises:
        HeadraceError: as `check_executors`.
    """
    transforms = [spec.transform for spec in project.specs.values() if spec.transform is not None]
    modules = sorted({name.partition(":")[0] for name in transforms})
    with report.working("asking the executors …"):
        grant = check_executors(
            spark.session,
            endpoints.database,
            [endpoints.sink],
            modules,
            secondary=_secondary(project, endpoints),
        )
    places = "one task" if grant.places == 1 else f"{grant.places} tasks"
    report.done(f"the cluster gives {grant.executors} executors for {places} at once")
    for reason in grant.away:
        report.warning(f"{reason}; what it lacks is deferred")
    if grant.places < _FEW:
        report.warning("live changes wait while an index is backfilled: there is one place for both")


def _secondary(project: Project, endpoints: Endpoints) -> dict[str, ProbedSink]:
    """Return the secondary sinks that executors write to directly."""
    probed: dict[str, ProbedSink] = {}
    for name, sink in project.secondary.items():
        sink_endpoints = endpoints.secondary[name]
        if sink.type == OPENSEARCH:
            probed[name] = (sink.type, sink_endpoints.sink)
        elif sink.type != "stdout":
            probed[name] = (sink.type, sink_endpoints.options)
    return probed
