"""A recorded run against what a scenario predicts of it."""
