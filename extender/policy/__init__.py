"""The policy file: YAML, checked, and read again when it changes.

`extender.policy.rules` decides what a policy means.
"""
