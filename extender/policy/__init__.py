"""The policy file: YAML, checked, and read again after a change. `rules` decides about Pods."""
