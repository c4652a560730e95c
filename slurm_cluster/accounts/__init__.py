"""QOS, accounts and users as a file wants them: compared with what slurmdbd has, and made so."""
