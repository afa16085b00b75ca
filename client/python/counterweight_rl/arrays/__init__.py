"""Arrays of the caller: reading them for the wire, and writing answers into them."""
