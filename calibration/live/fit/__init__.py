"""Device and engine constants, fitted to recorded stages."""
