"""Real servers of SmolLM2-135M on one CPU core, for tests and recordings."""
