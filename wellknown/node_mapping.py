"""The mapping between Nodes of Kubernetes and nodes of Slurm.

A Node names its Slurm node by a label, else by its own name. Where several Nodes name the same Slurm
node, the Node that has the Slurm node's name stands for it. Where no Node has that name, none stands
for it until a person corrects the labels: it is unknown on which of the Nodes its jobs run. Code that
must be sure that a Slurm node is free looks at all Nodes that name it.
"""

from collections.abc import Iterator, Mapping

_RESTRICTED = "node-restriction.kubernetes.io"
_MOST_TOLD = 5


def slurm_name(name: str, labels: Mapping[str, str], label: str) -> str:
    """Returns the name of the Slurm node that a Node names."""
    return labels.get(label) or name


def is_kubelets(label: str) -> bool:
    """Tells whether a kubelet may put a label onto its own Node: by such a label it could take another
    Node's Pods. Source: k8s.io/kubernetes plugin/pkg/admission/noderestriction."""
    namespace = label.rpartition("/")[0]
    return namespace != _RESTRICTED and not namespace.endswith(f".{_RESTRICTED}")


class NodeNames:
    """The rule for one set of Nodes."""

    def __init__(self, named: Mapping[str, str]) -> None:
        """`named` has the Slurm node that each Node names, by the Node's own name."""
        self._naming: dict[str, tuple[str, ...]] = {}
        for node, slurm_node in named.items():
            self._naming[slurm_node] = (*self._naming.get(slurm_node, ()), node)

    def naming(self, slurm_node: str) -> tuple[str, ...]:
        """Returns the Nodes that name a Slurm node."""
        return self._naming.get(slurm_node, ())

    def standing_for(self, slurm_node: str) -> str | None:
        """Returns the Node that stands for a Slurm node."""
        naming = self.naming(slurm_node)
        if len(naming) == 1:
            return naming[0]
        return slurm_node if slurm_node in naming else None

    @property
    def contested(self) -> Mapping[str, tuple[str, ...]]:
        """Returns the Slurm nodes that several Nodes name, with these Nodes."""
        several = ((slurm_node, naming) for slurm_node, naming in self._naming.items() if naming[1:])
        return {slurm_node: tuple(sorted(naming)) for slurm_node, naming in sorted(several)}


def trouble(names: NodeNames, label: str) -> str | None:
    """Returns a warning about Nodes that name the same Slurm node, None where there are none."""
    told = [in_words(names, slurm_node) for slurm_node in names.contested]
    if not told:
        return None
    return "; ".join([*_shortened(told), f"the label is {label}"])


def in_words(names: NodeNames, slurm_node: str) -> str:
    """Returns words for the Nodes that name a Slurm node, and for the one that stands for it."""
    stands, naming = names.standing_for(slurm_node), sorted(names.naming(slurm_node))
    kept = f"{stands} alone stands for it" if stands else "none stands for it, and it gets no Pods"
    return f"Nodes {', '.join(_shortened(naming))} name Slurm's node {slurm_node}: {kept}"


def _shortened(told: list[str]) -> Iterator[str]:
    yield from told[:_MOST_TOLD]
    if len(told) > _MOST_TOLD:
        yield f"and {len(told) - _MOST_TOLD} more"
