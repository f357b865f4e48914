"""Regions: what Relax functions of the partitioner say, as a graph of nodes and values."""
