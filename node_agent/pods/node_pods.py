"""Follows the Pods of this Node in kube-apiserver."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from decimal import Decimal

from kubernetes_client.errors import KubernetesError
from kubernetes_client.protocol import Kubernetes, Manifest
from kubernetes_client.watch import ResourceWatch
from node_agent.pods.claims import Claim, claim_of, sockets_of
from wellknown.resources import effective_requests
from wellknown.slurmd_pod import pod_name, pull_pod_name

_PAUSE_S = 1.0
_MAX_REMOVALS = 1024
"""Limit on the removed Pods to remember between two calls of `removals`. A kubelet runs fewer Pods than
this limit."""


class NodePods:
    """Follows the Node's Pods, and keeps their claims by uid."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        node: str,
        changed: Callable[[], object],
        report: Callable[[KubernetesError | None], object],
        slurmd_namespace: str = "",
    ) -> None:
        """Parameter `report` gets a problem with kube-apiserver, and None after the problem has ended.
        Parameter `slurmd_namespace` is the namespace of the Node's slurmd Pod."""
        self._node = node
        self._slurmd = slurmd_namespace, pod_name(node)
        self._pull = slurmd_namespace, pull_pod_name(node)
        self.slurmd: Manifest | None = None
        """The Node's slurmd Pod, if kube-apiserver has the Pod."""
        self.slurmds = set[str]()
        """Uids of all slurmd Pods of this Node that kube-apiserver has reported to this agent."""
        self.pull: Manifest | None = None
        """The Pod that pulls the images of the next slurmd Pod, if kube-apiserver has the Pod."""
        self._changed = changed
        self._report = report
        self._watch = ResourceWatch(kubernetes, "pods", f"spec.nodeName={node}", report)
        self.claims: dict[str, Claim] | None = None
        """The claims of all Pods by uid, or None before the first list."""
        self._requests: dict[str, Mapping[str, Decimal]] = {}
        """Requests of extended resources by the uid of the Pod. Pods without such requests are left
        out."""
        self._sockets: dict[str, str] = {}
        """Sockets (`sockets_of`) by the uid of the Pod. Pods without sockets are left out."""
        self._news = asyncio.Event()
        """Set when a Pod changes."""
        self._removals: dict[str, Claim] = {}
        """Claims by uid of Pods that kube-apiserver removed while the agent listened."""
        self._listening: asyncio.Timeout | None = None
        """Timeout of the current watch. `doubt` uses the timeout to end the watch."""

    def removals(self, here: Collection[str]) -> Mapping[str, Claim]:
        """Returns the claims of Pods that kube-apiserver has removed, but that still have a cgroup, by
        uid. Parameter `here` has the uids of all Pods with a cgroup. Forgets all other removed Pods."""
        self._removals = {uid: claim for uid, claim in self._removals.items() if uid in here}
        return self._removals

    def requests(self, resource: str) -> dict[str, int]:
        """Returns the requests of an extended resource by the uid of the Pod. Pods without a request are
        left out."""
        return {uid: int(of[resource]) for uid, of in self._requests.items() if resource in of}

    @property
    def sockets(self) -> Collection[str]:
        """Returns the sockets of the node, as `Allocation.sockets` names them, by which Slurm numbered
        the Pods' cores. The result has several entries only if slurm.conf has changed while Pods had
        cores."""
        return {*self._sockets.values()}

    async def news(self) -> None:
        """Waits until a Pod changes."""
        await self._news.wait()

    def is_of_job(self, uid: str) -> bool:
        """Returns True for a job's Pod, even if kube-apiserver has removed the Pod."""
        claim = (self.claims or {}).get(uid) or self._removals.get(uid)
        return claim is not None and claim.of_job

    def doubt(self) -> None:
        """Makes `follow` list the Pods again. Call this method if a Pod is missing in `claims`, because
        the connection to kube-apiserver may be dead."""
        if self._listening is not None and not self._listening.expired():
            self._listening.reschedule(asyncio.get_running_loop().time())

    async def follow(self) -> None:
        """Follows kube-apiserver for ever. After a call of `doubt`, lists the Pods again, at most once a
        second."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(None) as self._listening:
                    await self._listen()
            self._listening = None
            await asyncio.sleep(_PAUSE_S)

    async def _listen(self) -> None:
        listed = await self._list()
        self._tell()
        async for change in self._watch.changes():
            uid = change.manifest["metadata"]["uid"]
            if change.gone:
                self._requests.pop(uid, None)
                self._sockets.pop(uid, None)
                self._note_removal(listed.pop(uid, None))
                if self.slurmd is not None and self.slurmd["metadata"]["uid"] == uid:
                    self.slurmd = None
                if self.pull is not None and self.pull["metadata"]["uid"] == uid:
                    self.pull = None
            else:
                listed[uid] = self._claim(change.manifest)
            self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
        self._changed()

    def _claim(self, manifest: Manifest) -> Claim:
        metadata = manifest["metadata"]
        claim = claim_of(manifest, self._node)
        requests = effective_requests(manifest.get("spec") or {})
        extended = {name: amount for name, amount in requests.items() if "/" in name}
        if extended:
            self._requests[claim.uid] = extended
        self._sockets.pop(claim.uid, None)
        if sockets := sockets_of(manifest):
            self._sockets[claim.uid] = sockets
        name = metadata.get("namespace"), metadata["name"]
        if name == self._pull:
            self.pull = manifest
        if name != self._slurmd or claim.of_job:
            return claim
        self.slurmd = manifest
        self.slurmds.add(claim.uid)
        return claim._replace(slurmd=True)

    async def _list(self) -> dict[str, Claim]:
        while True:
            try:
                manifests = await self._watch.list()
            except KubernetesError as error:
                self._report(error)
                await asyncio.sleep(_PAUSE_S)
            else:
                self._report(None)
                self.slurmd = self.pull = None
                self._requests, self._sockets = {}, {}
                found = [self._claim(manifest) for manifest in manifests]
                before, self.claims = self.claims or {}, {claim.uid: claim for claim in found}
                for uid in before.keys() - self.claims.keys():
                    self._note_removal(before[uid])
                return self.claims

    def _note_removal(self, claim: Claim | None) -> None:
        if claim is not None:
            self._removals[claim.uid] = claim
            if len(self._removals) > _MAX_REMOVALS:
                del self._removals[next(iter(self._removals))]
