"""From an operator of PyTorch (``aten``) to operators of Relax, one file for each family.

A converter takes the graph under construction and the operator's arguments by the names of its
schema, ``self`` as ``x``; one that it does not name is an error, so that nothing is ignored by
oversight. It returns one expression, or a list of them, None for a result that nobody may read. The
node's results, ``g.results``, have the shapes and dtypes that PyTorch found.

Whatever has a converter stays whole; PyTorch takes apart the rest (``decompositions``).
"""
