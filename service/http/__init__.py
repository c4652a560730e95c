"""HTTP: a listener with limits, and calls over kept connections."""
