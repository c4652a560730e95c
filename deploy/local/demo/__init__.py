"""`python -m deploy.local.demo`: the main job told on a terminal, on a cluster of its own, seen from
outside: no module imports the extender."""
