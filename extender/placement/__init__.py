"""Decisions about placeholders: pure functions of reports from both systems, without I/O or a clock.

Effects are the result. `extender.execution.dispatcher` carries effects out, and the outcomes come back
as events.
"""
