"""What does a run tell of the cluster that shares its work, before it begins?"""

from __future__ import annotations

from headrace.pipeline.project import OPENSEARCH, Endpoints, Project
from headrace.reporter import Reporter
from headrace.spark.cluster_check import ProbedSink, check_executors
from headrace.spark.session import LocalSpark

_FEW = 2
"""Places; one of them is the stream's."""


def check_cluster(spark: LocalSpark, project: Project, endpoints: Endpoints, report: Reporter) -> None:
    """Make sure that its executors can do the work.

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
    for one in grant.away:
        report.warning(f"{one}; what it lacks is deferred")
    if grant.places < _FEW:
        report.warning("live changes wait while an index is seeded: there is one place for both")


def _secondary(project: Project, endpoints: Endpoints) -> dict[str, ProbedSink]:
    """Those that executors write to by themselves."""
    found: dict[str, ProbedSink] = {}
    for name, sink in project.secondary.items():
        place = endpoints.secondary[name]
        if sink.type == OPENSEARCH:
            found[name] = (sink.type, place.sink)
        elif sink.type != "stdout":
            found[name] = (sink.type, place.options)
    return found
