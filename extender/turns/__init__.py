"""The order of work: for which Pod the extender requests a job next, when the extender repeats a refused
request, and which Pods the extender may delete in a minute. The code depends only on the records and the
ledger's clock.
"""
