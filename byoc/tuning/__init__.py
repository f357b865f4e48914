"""Measured choice: ``tuner`` times what can compute each layer, and a database remembers it.

``layers`` finds what there is to time, ``build`` compiles it, ``timing`` and ``worker`` time it,
``database`` keeps it; ``codegen_cc.libraries.measured_choice`` decides by it.
"""
