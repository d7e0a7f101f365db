"""`headrace explain`: say why a document is, or is not, in its index."""

from __future__ import annotations

from headrace.cli import terminal
from headrace.cli.context import CommandContext
from headrace.tools.explain import Explainer


def explain_document(context: CommandContext, index: str, document: str) -> bool:
    """Print what is known of a document; return whether the index shows what the database says.

    Raises:
        HeadraceError: USAGE for an unknown index; SLOT_UNKNOWN where nothing has run yet; CONFIG; an error of
            the database or the cluster.
    """
    project = context.open_project()
    answer = Explainer(project, project.resolve()).explain(index, document)
    if context.as_json:
        # A list and no object: the facts have an order, in which they lead to the verdict.
        facts = [{"name": name, "value": value} for name, value in answer.facts]
        found = {"verdict": answer.verdict, "right": answer.right, "facts": facts}
        terminal.data({**found, "remedy": answer.remedy or None})
        return answer.right
    terminal.answer(answer.verdict)
    width = max(len(name) for name, _ in answer.facts)
    for name, value in answer.facts:
        terminal.answer(f"  {name:<{width}}  {value}")
    if answer.remedy:
        terminal.answer(f"→ {answer.remedy}")
    return answer.right
