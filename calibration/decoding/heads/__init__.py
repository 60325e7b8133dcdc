"""What speculative decoding trains on top of a frozen target: heads, an EAGLE layer, a draft."""
