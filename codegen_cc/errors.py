"""Errors of the code generator."""

from __future__ import annotations


class CodegenError(Exception):
    """A region cannot be turned into a runtime module; the message is one line with the remedy."""


class LibraryError(CodegenError):
    """A kernel library is missing, does not import, or does not fit."""


class ToolchainError(CodegenError):
    """The C compiler or binutils are missing or refused their input."""
