"""A function of a C header becomes one that TVM calls: ``byoc extern``.

In the order in which a prototype travels: ``header`` reads it, ``roles`` its annotation;
``assemble`` checks both and gives a ``signature``; ``packed``, ``python_operator``, ``library_row``
and ``generated_test`` each print one product of it, ``generate`` writes them to a folder.  The
generated Python uses ``shapes``, ``loading``, ``rewrite`` and ``references``.
"""
