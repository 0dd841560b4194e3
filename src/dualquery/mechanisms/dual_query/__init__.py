"""DualQuery: the query player learns, the data player best-responds (Gaboardi et al. 2014)."""
