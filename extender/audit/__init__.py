"""Both systems compared: by a command that changes nothing, and by the leader now and then."""
