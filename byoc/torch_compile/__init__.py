"""``torch.compile(model, backend="byoc")``: graphs of PyTorch's tracer, each as a library."""
