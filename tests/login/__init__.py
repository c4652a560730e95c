"""Tests of the login Pod. The Pod's containers run on this machine, with a real LDAP server and a real
Slurm."""
