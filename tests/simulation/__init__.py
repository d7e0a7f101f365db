"""The controller against a simulated world: a seed decides every event, and the process may die anywhere."""
