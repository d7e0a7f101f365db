"""Generate a page for each error, and the list of all, from docs/troubleshooting.md and their kinds."""

from __future__ import annotations

import re
from dataclasses import dataclass

from builder.markdown import cell, table
from builder.messages import messages_by_kind
from headrace.errors import POLICIES, Kind, Retry


@dataclass(frozen=True, slots=True)
class Remedy:
    """What docs/troubleshooting.md says of one kind of error.

    Attributes:
        text: the section, below its heading.
        means: its first sentence, without `**Means**`.
    """

    kind: Kind
    text: str
    means: str


def read_remedies(page: str) -> tuple[str, list[Remedy]]:
    """Return what stands above the first section, and the sections in their order."""
    head, *sections = re.split(r"^## HEADRACE_", page, flags=re.MULTILINE)
    return head, [_remedy(*section.split("\n", 1)) for section in sections]


def policy_line(kind: Kind) -> str:
    """Return the line of a section that says how the error is handled."""
    policy = POLICIES[kind]
    waits = "; waits" if policy.retry is Retry.BACK_OFF else ""
    return f"Exit code {policy.exit_code}{waits}."


def list_page(head: str, remedies: list[Remedy]) -> str:
    """Return the list of all errors, each with a link to its page."""
    rows = (
        (
            f"[`HEADRACE_{each.kind.value}`](errors/{each.kind.value.lower()}.md)",
            str(POLICIES[each.kind].exit_code),
            "yes" if POLICIES[each.kind].retry is Retry.BACK_OFF else "",
            cell(each.means),
        )
        for each in remedies
    )
    return head + table(("code", "exit code", "waits", "means"), rows)


def error_page(remedy: Remedy) -> str:
    """Return the page of one error, with every message of its kind."""
    page = f"# HEADRACE_{remedy.kind.value}\n\n{remedy.text}"
    messages = messages_by_kind().get(remedy.kind)
    if not messages:
        return page
    rows = [(cell(cause), cell(remedy)) for cause, remedy in messages]
    listed = table(("cause", "remedy"), rows)
    return f"{page}\n## Messages\n\nWords in capitals differ from case to case.\n\n{listed}"


def _remedy(name: str, text: str) -> Remedy:
    means = re.search(r"\*\*Means\*\* (.+?)(?:\. |\.\n|: )", text.replace("\n", " ") + " ")
    assert means is not None, name
    paragraphs = re.sub(r"\n(?=\*\*(?:Causes|Remedy)\*\*)", "\n\n", text.strip("\n"))
    return Remedy(Kind[name], f"{paragraphs}\n", means[1][0].upper() + means[1][1:])
