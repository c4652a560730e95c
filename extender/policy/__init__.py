"""Policies as people write them: a YAML file, checked, and read again when it changes.

What a policy means is decided in `extender.policy.rules`.
"""
