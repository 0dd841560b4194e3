"""Queries as text."""
