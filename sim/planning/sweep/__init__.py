"""Sweeps: many points of one scenario, over processes or a cluster, into one flat table."""
