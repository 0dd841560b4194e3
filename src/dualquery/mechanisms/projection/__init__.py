"""Projection by best responses: one noisy measurement, and rows that answer its residual."""
