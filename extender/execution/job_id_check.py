"""The check whether Slurm's own job ids come near the placeholders' range: now and then, on every
replica."""

from service.health import Health
from service.periodic import periodically
from slurm_client.errors import SlurmError
from slurm_client.protocol import Slurm
from wellknown.job_key import JobIdRange, encroaching

_INTERVAL_S = 60.0
PART = "job ids"
"""The part of health for them."""


class JobIdCheck:
    """`max_job_id` is Slurm's MaxJobId for a slurmrestd that does not tell it; None: not known. Such
    a slurmrestd does not tell the next id either: the leader's audit then notes the ids that it has
    seen."""

    def __init__(
        self, slurm: Slurm, health: Health, ids: JobIdRange, max_job_id: int | None = None
    ) -> None:
        self._slurm = slurm
        self._health = health
        self.ids = ids
        self.latest: int | None = None
        """The newest or the next id of Slurm's own, as far as is known."""
        self.slurmctld_started: int | None = None
        """When slurmctld started, in UNIX seconds, where slurmrestd has told it."""
        self._max_job_id = max_job_id
        self._seen: int | None = None

    def note(self, native: int | None) -> None:
        """Notes the highest id below the range among all jobs of Slurm, None where there is none."""
        self._seen = max(filter(None, (self._seen, native)), default=None)

    async def run(self) -> None:
        """Looks for ever."""
        errors = SlurmError  # other parts say so
        await periodically(self.look, _INTERVAL_S, outlives=errors)

    async def look(self) -> None:
        """Looks once. Raises SlurmError."""
        told = await self._slurm.configuration()
        self.latest = self._seen if told.next_job_id is None else told.next_job_id
        self.slurmctld_started = told.boot_time
        highest = self._max_job_id if told.max_job_id is None else told.max_job_id
        self._health.says(PART, encroaching(self.latest, highest, self.ids))
