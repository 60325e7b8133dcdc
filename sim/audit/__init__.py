"""Audit of published claims: each is a scenario, what is measured, and what was claimed of it."""
