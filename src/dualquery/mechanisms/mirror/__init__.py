"""Mirror descent: MWEM with another learner, on histograms that are written out or through a Gram matrix."""
