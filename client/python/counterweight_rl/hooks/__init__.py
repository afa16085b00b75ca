"""Trainers take the service up by configuration, through the extension points that they have.

There is one module per framework, which the framework itself imports by the name in its
configuration; each module's docstring has that line, and README.md has more. The settings
are those of ``counterweight_rl.compat``: the ``COUNTERWEIGHT_*`` variables, or the framework's own
configuration where it can carry them. A wrong setting or an absent server is an error when the
framework imports or creates the hook, before it generates anything.
"""
