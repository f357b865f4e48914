"""The model zoo: builders of ONNX graphs with seeded weights, and the demo's picture.

Only for tests, benchmarks and the demo; it is not installed.  Run from the project's root.
"""
