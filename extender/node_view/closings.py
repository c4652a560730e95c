"""Words for a Pod's author, as kube-scheduler's: the number of Nodes closed for each reason."""

from collections import Counter
from collections.abc import Iterator

from extender.node_view.node_index import By, Closing
from extender.pod_request.constraints.node_constraints import CORDON, Taint

_MOST_TOLD = 5
_ONE = {"have": "has", "do": "does", "are": "is"}
_BY = {
    By.AFFINITY: "do not match its required node affinity",
    By.CLAIM: "are not where its volumes are",
    By.AGENT: "have no node agent, which would give it exactly its GPUs",
}


def in_kubernetes_words(closing: Closing) -> str:
    """Returns words for what closed Nodes have or lack."""
    match closing:
        case Taint() if closing == CORDON:
            return "are cordoned"
        case Taint(key, value):
            return f"have taint {{{key}: {value}}} that it does not tolerate"
        case By():
            return _BY[closing]
        case (key, value):
            return f"do not match node selector {key}={value}"


def in_words(total: int, closed: Counter[str]) -> str:
    """Returns a sentence with the number of closed Nodes for each reason."""
    if not total:
        return "no Node stands for any of its nodes"
    return f"0/{total} Nodes: {', '.join(_parts(closed))}"


def _parts(closed: Counter[str]) -> Iterator[str]:
    told = [(words, count) for words, count in closed.most_common(_MOST_TOLD) if count]
    for words, count in told:
        verb, _, rest = words.partition(" ")
        yield f"{count} {_ONE[verb] if count == 1 else verb} {rest}"
    others = closed.total() - sum(count for _, count in told)
    if others:
        yield f"{others} for other reasons"
