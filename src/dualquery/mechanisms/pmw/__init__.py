"""Private multiplicative weights, offline (Hardt, Rothblum 2010; Ullman's tutorial of 2013)."""
