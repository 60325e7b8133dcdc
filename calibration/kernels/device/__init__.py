"""Times real kernels with torch on the device at hand, CUDA or CPU, with the same code."""
