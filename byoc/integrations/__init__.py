"""Compiled networks inside of engines that others wrote: Ray Data for batches, MLServer to serve.

An engine is imported when it is first needed, and TVM's runtime alone runs the networks.
"""
