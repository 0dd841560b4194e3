"""Counting the truth, wherever the records are."""
