"""Recorded decoding runs predicted by the simulator, from kernels timed one by one."""
