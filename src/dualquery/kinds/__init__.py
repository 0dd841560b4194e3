"""Kinds of tables: records, graphs, points, codes; each is one value of `Kind`."""
