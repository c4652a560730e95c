"""slurm.conf and the files beside it: tried, compared with what runs, and brought to slurmctld."""
