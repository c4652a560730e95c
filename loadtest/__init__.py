"""What shows how fast the extender is, and what it costs: on whole clusters of this machine.

`load` holds kube-scheduler's calls to `budgets`, with `locustfile` and `stock`, and with a stub of Slurm
(`slurmrestd_stub`), so that Slurm's speed is not what is measured.

In the benchmarks `arms` says what is compared, `crowd` creates Pods and sees them bound, `measurement`
times that, `figures` sums it up and judges. Each figure is one of a run in which all arms take part, so
that what the machine does meanwhile falls on all of them. `meters` reads what a cluster spent on it.

`scale` has very many Pods wait while others are placed: `scale_crowd` makes them, `scale_probe` watches
the extender's event loop from the inside, `scale_figures` sums up and judges, and `scale_page` tells
docs/scale.md.

All of them read pages of metrics with `scrape`.
"""
