"""Reads the caller's arrays for the wire, and writes answers into arrays."""
