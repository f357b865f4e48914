"""Emission: plans as C, and the functions through which TVM calls it."""
