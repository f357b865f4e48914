"""Linking: C text, packed weights and kernels into one object, with binutils' help."""
