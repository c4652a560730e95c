"""Cleans up after an uninstall: the user chooses what happens to the gates and the jobs of the
extender."""
