"""Data and pure functions for a workload (a Pod, or a group of Pods): the record, the states, the events
and the effects."""
