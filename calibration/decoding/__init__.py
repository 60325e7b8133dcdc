"""Speculative decoding on a real model: what is accepted, and how long a step takes."""
