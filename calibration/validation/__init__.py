"""Predictions against what others measured."""
