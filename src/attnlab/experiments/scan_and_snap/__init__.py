"""Experiments about \"Scan and Snap\": its figures, and what it leaves open."""
