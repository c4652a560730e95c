"""What is measured, a module each. `python -m loadtest` has the commands."""
