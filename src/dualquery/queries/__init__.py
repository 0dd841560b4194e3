"""Groups of queries, workloads and families: public shapes."""
