"""Speed, memory and accuracy, measured: `make bench`, or `python -m benchmarks.NAME` for one of them."""
