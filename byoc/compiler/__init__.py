"""From a model to a library: a front end's module partitioned, compiled, described and linked.

What runs the libraries is ``byoc.deploy``, which imports nothing of this.
"""
