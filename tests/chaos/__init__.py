"""`make chaos`: every fault that a deployment must survive, again and again, with writers.

`fixtures` has the servers, the deployment and what stands between them, `workload` the writers, `faults`
what goes wrong, and `__main__` counts.
"""
