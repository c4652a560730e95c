"""`python -m extender` runs the extender."""

from extender.app import main

main()
