"""Cleans up after an uninstall: the user chooses whether to lift the extender's gates, and whether to
end the Pods' jobs."""
