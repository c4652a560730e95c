"""The mapping between Nodes of Kubernetes and nodes of Slurm.

A Node names a Slurm node by a label, or else by the Node's own name. If one Node names a Slurm node by
the label, and another Node by its own name, the Node with the label stands for the Slurm node. Only an
administrator can set the label, but a machine may join under any name. If the labels of several Nodes
name the same Slurm node, no Node stands for the Slurm node until a person corrects the labels. Until
then, the jobs of the Slurm node may run on any of these Nodes. Code that must be sure that a Slurm node
is free looks at all Nodes that name the Slurm node.
"""

from collections.abc import Iterator, Mapping

_RESTRICTED = "node-restriction.kubernetes.io"
_MOST_SHOWN = 5


def slurm_name(name: str, labels: Mapping[str, str], label: str) -> str:
    """Returns the name of a Node's Slurm node."""
    return labels.get(label) or name


def is_kubelets(label: str) -> bool:
    """Returns True if kubelets may set a label on their own Nodes. If the mapping used such a label, a
    kubelet could get another Node's Pods. Source: k8s.io/kubernetes
    plugin/pkg/admission/noderestriction."""
    namespace = label.rpartition("/")[0]
    return namespace != _RESTRICTED and not namespace.endswith(f".{_RESTRICTED}")


class NodeNames:
    """The mapping of one set of Nodes."""

    def __init__(self, named: Mapping[str, str]) -> None:
        """`named` has the name of a Slurm node for each name of a Node."""
        self._naming: dict[str, tuple[str, ...]] = {}
        for node, slurm_node in named.items():
            self._naming[slurm_node] = (*self._naming.get(slurm_node, ()), node)

    def naming(self, slurm_node: str) -> tuple[str, ...]:
        """Returns the Nodes that name a Slurm node."""
        return self._naming.get(slurm_node, ())

    def standing_for(self, slurm_node: str) -> str | None:
        """Returns the Node that stands for a Slurm node."""
        naming = self.naming(slurm_node)
        labelled = [node for node in naming if node != slurm_node] or naming
        return labelled[0] if len(labelled) == 1 else None

    @property
    def contested(self) -> Mapping[str, tuple[str, ...]]:
        """Returns each Slurm node that several Nodes name, with these Nodes."""
        several = ((slurm_node, naming) for slurm_node, naming in self._naming.items() if naming[1:])
        return {slurm_node: tuple(sorted(naming)) for slurm_node, naming in sorted(several)}


def problem(names: NodeNames, label: str) -> str | None:
    """Returns a warning about Nodes that name the same Slurm node; None without such Nodes."""
    messages = [in_words(names, slurm_node) for slurm_node in names.contested]
    if not messages:
        return None
    return "; ".join([*_shortened(messages), f"the label is {label}"])


def in_words(names: NodeNames, slurm_node: str) -> str:
    """Returns a message about the Nodes that name a Slurm node, and about the Node that stands for
    the Slurm node."""
    stands, naming = names.standing_for(slurm_node), sorted(names.naming(slurm_node))
    kept = f"{stands} alone stands for it" if stands else "none stands for it, and it gets no Pods"
    return f"Nodes {', '.join(_shortened(naming))} name Slurm's node {slurm_node}: {kept}"


def _shortened(messages: list[str]) -> Iterator[str]:
    yield from messages[:_MOST_SHOWN]
    if len(messages) > _MOST_SHOWN:
        yield f"and {len(messages) - _MOST_SHOWN} more"
