"""Batches in memory that client and server share.

``region`` creates the memory, ``control`` registers it with the server, ``pool`` keeps it,
``exchange`` is one call, and ``arrays`` are the caller's. proto/README.md, "Shared memory", defines
the protocol.
"""
