"""Recorded traces: their formats, how a file is read, and how its requests are replayed."""
