"""The measurements, with a module for each measurement. `python -m loadtest` has the commands."""
