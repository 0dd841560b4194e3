"""Disjunctions: weights over signed monomials, and parities measured by order."""
