"""Conclusions from a release: draws around what was measured, and what functions and models make of them."""
