"""Load: requests sent to a live server, and what came back."""
