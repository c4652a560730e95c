"""Causes as data, and the text of each cause for users."""
