module slurm-extender/loadtest/noop

go 1.22
