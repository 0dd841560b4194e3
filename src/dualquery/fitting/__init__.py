"""Rows fitted to what was measured. Blind: nothing here imports privacy or counting; all of it is public by now."""
