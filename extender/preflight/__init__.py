"""The comparison of an installation's settings with both systems, before anything is installed and at
any time after: each check is a function of facts that were read."""
