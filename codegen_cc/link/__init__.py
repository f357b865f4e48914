"""Linking: C text, packed weights and kernels into one object, with the C compiler's help."""
