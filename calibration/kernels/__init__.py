"""Timing of kernels: published tables, this device, and the fit of both to a profile."""
