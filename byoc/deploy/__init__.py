"""What a compiled network is when it leaves, and how it is taken up again.

The metadata in each library, reading them from the file, TVM's runtime, loading and running, and
the form that needs no TVM.
"""
