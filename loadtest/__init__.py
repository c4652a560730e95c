"""What shows how fast the extender is, and what it costs: benchmarks on whole clusters of this machine.

`arms` says what is compared, `crowd` creates Pods and sees them bound, `measurement` times that,
`figures` sums it up and judges. Each figure is one of a run in which all arms take part, so that what
the machine does meanwhile falls on all of them.
"""
