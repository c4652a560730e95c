"""The reaction of a placeholder's record to each event, and the record's next effect."""
