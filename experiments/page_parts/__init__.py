"""What stands between the markers of README.md and docs: a function for each part, from the files alone."""
