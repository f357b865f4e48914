"""The version of this package, which libraries say that they were made by."""

__version__ = "0.1.0"
