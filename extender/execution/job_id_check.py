"""Checks on every replica whether the ids that Slurm gives to native jobs come near the placeholders'
range."""

from service.health import Health
from service.periodic import periodically
from slurm_client.errors import SlurmError
from slurm_client.protocol import Slurm
from wellknown.job_key import JobIdRange, encroaching

_INTERVAL_S = 60.0
PART = "job ids"  # part of the health report


class JobIdCheck:
    """The check of job ids. If slurmrestd does not report Slurm's MaxJobId, the check uses `max_job_id`
    instead. Such a slurmrestd also does not report Slurm's next job id. So the leader's audit passes the
    highest native job id to `note`."""

    def __init__(
        self, slurm: Slurm, health: Health, ids: JobIdRange, max_job_id: int | None = None
    ) -> None:
        self._slurm, self._health, self.ids = slurm, health, ids
        self.latest: int | None = None
        """Slurm's next job id, or the highest native job id that an audit has found; None if neither is
        known."""
        self.slurmctld_started: int | None = None
        """The start of slurmctld, in UNIX seconds, if slurmrestd reports the time."""
        self._max_job_id = max_job_id
        self._seen: int | None = None

    def note(self, native: int | None) -> None:
        """Notes the highest job id below the range in Slurm. `native` is None if no job has such an
        id."""
        self._seen = max(filter(None, (self._seen, native)), default=None)

    async def run(self) -> None:
        """Repeats the check for ever."""
        await periodically(self.look, _INTERVAL_S, outlives=SlurmError)  # other parts report errors

    async def look(self) -> None:
        """Checks once. Raises SlurmError."""
        conf = await self._slurm.configuration()
        self.latest = self._seen if conf.next_job_id is None else conf.next_job_id
        self.slurmctld_started = conf.boot_time
        highest = self._max_job_id if conf.max_job_id is None else conf.max_job_id
        self._health.says(PART, encroaching(self.latest, highest, self.ids))
