"""Records the batches of ``correct`` as Parquet files, which ``counterweight audit`` reads.

``settings`` has the arguments, ``rows`` copies a call's arrays, ``table`` makes Parquet columns of
them, ``folder`` keeps the files, and ``recorder`` the queue and the thread between them.
"""
