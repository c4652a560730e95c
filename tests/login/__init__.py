"""Tests of the login Pod, to which users log in by SSH to use Slurm. The Pod's containers run on this
machine, with a real LDAP server and a real Slurm."""
