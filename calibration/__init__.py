"""Home of kernel timing, decoding runs, live endpoints and validation, which fit profiles."""
