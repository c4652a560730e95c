"""The Pods of this Node, by the word of kube-apiserver and of the container runtime."""

import asyncio
from collections.abc import Callable, Collection, Mapping

from kubernetes_client.errors import KubernetesError
from kubernetes_client.protocol import Kubernetes
from kubernetes_client.watch import ResourceWatch
from node_agent.claims import Claim, claim_of

_PAUSE_S = 1.0


class NodePods:
    """What they claim, by uid. kube-apiserver's word counts more; it may come later."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        node: str,
        changed: Callable[[], object],
        says: Callable[[KubernetesError | None], object],
    ) -> None:
        """`says` is told of trouble with kube-apiserver, and of its end."""
        self._node = node
        self._changed = changed
        self._says = says
        self._watch = ResourceWatch(kubernetes, "pods", f"spec.nodeName={node}", self._hear)
        self._listed: dict[str, Claim] | None = None
        """None until they were listed once."""
        self._begun: dict[str, Claim] = {}
        self._gone: dict[str, str] = {}
        self.heard = False
        """Whether kube-apiserver tells of changes now."""

    @property
    def claims(self) -> Mapping[str, Claim] | None:
        """Returns all of them; None while it is not known which Pods there are."""
        return None if self._listed is None else self._begun | self._listed

    def gone(self, here: Collection[str]) -> Mapping[str, str]:
        """Returns the names of the Pods of jobs that kube-apiserver has no more, of those that are yet
        `here`, by their cgroups."""
        self._gone = {uid: name for uid, name in self._gone.items() if uid in here}
        return self._gone

    def begins(self, claim: Claim) -> None:
        """The container runtime begins a Pod."""
        self._begun[claim.uid] = claim

    def ends(self, uid: str) -> None:
        """The container runtime has ended a Pod."""
        self._begun.pop(uid, None)

    async def follow(self) -> None:
        """Listens to kube-apiserver for ever."""
        listed = await self._list()
        self._changed()
        async for change in self._watch.changes():
            uid = change.manifest["metadata"]["uid"]
            if change.gone:
                claim = listed.pop(uid, None)
                self._begun.pop(uid, None)
                if claim is not None and claim.of_job:
                    self._gone[uid] = claim.pod
            else:
                listed[uid] = claim_of(change.manifest, self._node)
            self._changed()

    async def _list(self) -> dict[str, Claim]:
        while True:
            try:
                found = [claim_of(manifest, self._node) for manifest in await self._watch.list()]
            except KubernetesError as error:
                self._hear(error)
                await asyncio.sleep(_PAUSE_S)
            else:
                self._hear(None)
                self._listed = {claim.uid: claim for claim in found}
                return self._listed

    def _hear(self, trouble: KubernetesError | None) -> None:
        self.heard = trouble is None
        self._says(trouble)
