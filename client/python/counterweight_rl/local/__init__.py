"""The target ``local:``: libcounterweight in this process instead of a server."""
