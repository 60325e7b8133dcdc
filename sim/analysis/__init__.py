"""What the tables mean: metrics, verdicts and the printed report."""
