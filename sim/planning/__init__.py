"""What to do about it: how much load a deployment carries, what to buy, and sweeps."""
