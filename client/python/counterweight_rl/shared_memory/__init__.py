"""Batches whose bytes lie in memory that client and server share.

``region`` makes the memory, ``control`` tells the server of it, ``pool`` keeps it, ``exchange`` is
one call, and ``arrays`` are the caller's. Both ends go by proto/README.md, "Shared memory".
"""
