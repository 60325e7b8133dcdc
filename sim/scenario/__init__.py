"""What is asked: the strict scenario file, its grid of points, and the workload it describes."""
