"""Data and pure functions for a workload: record, states, events, effects, and the words in messages."""
