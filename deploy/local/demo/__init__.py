"""`python -m deploy.local.demo`: shows the main functions of slurm-extender on a separate cluster. The
demo observes the extender from outside: no module of the demo imports the extender."""
