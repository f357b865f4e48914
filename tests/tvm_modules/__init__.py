"""TVM's own tests as a source of modules: collected, partitioned, compared with plain TVM."""
