"""The login Pod: its containers on this machine, with a real LDAP server and a real Slurm."""
