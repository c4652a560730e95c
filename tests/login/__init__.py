"""The login Pod, of its images' own files: its containers run on this machine, with a real LDAP server
and a real Slurm."""
