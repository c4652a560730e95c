"""The order of work: which Pod requests a job next, when a refused request is repeated, and which Pods
may be deleted in a minute. The code depends only on the records and the ledger's clock.
"""
