"""Every fault that a deployment must survive, again and again, with writers: `make chaos`.

`ground` has the servers, the deployment and what stands between them, `writing` those who write, `faults`
what goes wrong, and `__main__` counts.
"""
