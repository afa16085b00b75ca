import os

# make peers installs the releases that these compare with, and make wheel makes the wheel.
collect_ignore = ["peers"] if "WHEEL" in os.environ else ["peers", "wheel"]
