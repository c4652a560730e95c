"""`python -m deploy.local.demo`: the main job told on a terminal, on a whole cluster of its own.

Everything is seen from outside, as a Pod's author (the API server) and a Slurm admin (squeue, scontrol)
see it: nothing here imports the extender.
"""
