"""How a story can go wrong."""


class NotObserved(Exception):
    """What was to be seen was not, or not in time; the message says what, for the summary."""
