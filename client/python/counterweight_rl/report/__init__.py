"""Runs from Prometheus as a picture and a page: ``python -m counterweight_rl.report``."""
