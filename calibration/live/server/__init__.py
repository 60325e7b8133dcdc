"""What a server says of itself: metrics, who it is, speculation of single requests."""
