"""A placeholder's reaction to each event, and its next effect."""
