"""Measure of the project's prose: pages, docstrings, comments, and the charts' values and notes."""
