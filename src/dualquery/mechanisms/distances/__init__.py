"""Distances: the factored kernel, and the coordinate-wise learner of Huang and Roth."""
