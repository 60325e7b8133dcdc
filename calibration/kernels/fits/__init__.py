"""Fits of the closed forms of ``models.kernels`` to timed kernels, one module an operation."""
