"""Compares the QOS, accounts and users of a file with slurmdbd, and applies the file to slurmdbd."""
