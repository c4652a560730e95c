"""QOS, accounts and users of a file: compared with slurmdbd, and applied to slurmdbd."""
