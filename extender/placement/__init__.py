"""What decides where a Pod runs, and nothing else: no await, no I/O, no clock of its own.

Everything here is a function of what the two systems said. What is decided leaves as effects that
`extender.execution.dispatcher` carries out, and their outcomes come back as events.
"""
