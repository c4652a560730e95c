"""The measurements, one module each. `python -m loadtest` has the commands."""
