"""What happens: requests, KV blocks, scheduling, replicas and the clock."""
