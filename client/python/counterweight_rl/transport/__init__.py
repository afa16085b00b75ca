"""How requests travel: the wire format, streams, retries, and the choice between them."""
