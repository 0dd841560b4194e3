"""Online private multiplicative weights (Hardt, Rothblum 2010; Ullman's tutorial of 2013)."""
