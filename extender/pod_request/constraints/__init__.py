"""A Pod's constraints on Nodes and on other Pods."""
