"""Reading and writing Relax, for all who do: front ends, canonicalisation, patterns, partitioner.

``dataflow`` is an editable view of a block of bindings, ``origin`` the names of the model's nodes
that bindings carry, ``names`` what users call operators and nodes by, ``symbols`` the symbols of
shapes. ``algebra`` and ``loop_nest`` read expressions and loops; ``define_symbols`` and
``check_extents`` are passes of modules with symbolic shapes.
"""
