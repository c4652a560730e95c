"""What runs in the guest: its init, and the program by which the host reaches it. They import nothing of
ours: the guest has Debian's Python, and its standard library alone."""
