"""A mechanism, a kind of table and a source for dualquery."""
