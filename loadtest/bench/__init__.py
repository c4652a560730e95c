"""`make bench`: the whole path, beside what bounds it, in one run on one machine.

`scenarios` is the list of what is measured, `run` measures it, `results` is what build/bench.json holds
of it, `held_to` the budgets. loadtest.performance_page makes docs/performance.md of that.
"""
