"""`python -m deploy.local.demo`: shows the main job of slurm-extender on a cluster of its own. The
demo observes the extender from outside: no module imports the extender."""
