"""MWEM: the query player best-responds, the data player learns (Hardt, Ligett, McSherry 2012)."""
