"""Benchmarks for those who develop kernels and planner: ``python -m benchmarks.gemm``.

They run in a checkout, and no wheel carries them; users have ``byoc bench`` and ``byoc profile``.
"""
