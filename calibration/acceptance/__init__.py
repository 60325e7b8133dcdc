"""From recorded acceptance of real decoding runs to an acceptance file."""
