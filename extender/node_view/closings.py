"""Explains why Nodes are closed to a Pod. As in kube-scheduler's messages, the explanation has the
number of Nodes for each reason."""

from collections import Counter

from extender.explain.cause import Cause, Kind
from extender.node_view.node_index import By, Closing, NotServed
from extender.pod_request.constraints.node_constraints import CORDON, Taint

_MOST_NAMED = 5
_BY = {
    By.AFFINITY: Cause.of(Kind.OTHER_AFFINITY),
    By.CLAIM: Cause.of(Kind.APART_FROM_VOLUMES),
    By.AGENT: Cause.of(Kind.WITHOUT_AGENT),
}


def cause_of(closing: Closing) -> Cause:
    """Returns the cause that closes Nodes. The cause names a property that the Nodes have or lack."""
    match closing:
        case Taint() if closing == CORDON:
            return Cause.of(Kind.CORDONED)
        case Taint(key, value):
            return Cause.of(Kind.TAINTED, key=key, value=value)
        case By():
            return _BY[closing]
        case NotServed(resource):
            return Cause.of(Kind.NOT_SERVED, resource=resource)
        case (key, value):
            return Cause.of(Kind.OTHER_LABEL, key=key, value=value)


def closed_nodes(total: int, closed: Counter[Cause]) -> Cause:
    """Returns a cause with the number of closed Nodes for each of the most frequent reasons."""
    most = tuple([(number, cause) for cause, number in closed.most_common(_MOST_NAMED) if number])
    others = closed.total() - sum(number for number, _ in most)
    return Cause.of(Kind.CLOSED_NODES, total=total, closed=most, others=others)
