"""The policy: a YAML file that the extender checks, and reads again after each change. `rules` decides
about Pods."""
