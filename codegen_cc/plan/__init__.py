"""Planning: which kernels a region calls, and where its values lie in memory."""
