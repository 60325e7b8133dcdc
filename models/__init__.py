"""What things cost: hardware, transformers, kernels, engines and strategies as plain arithmetic."""
