"""What every scenario is made of: clusters (`variants`), Pods (`pods`, `bursts`), what clusters spend
(`meters`), what Slurm says (`slurm`), a command and its verdict (`command`, `budgets`)."""
