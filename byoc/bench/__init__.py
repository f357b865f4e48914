"""Benchmarks: whole networks beside other engines, single kernels beside the machine's peak."""
