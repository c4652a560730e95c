"""Data and pure functions for a workload: record, states, events and effects."""
