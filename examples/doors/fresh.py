"""Run ``main`` of an exported library with TVM's runtime alone; ``run_fresh`` starts this.

``python -I fresh.py LIBRARY ARRAYS.npz RESULT.npy``
"""

import sys

import numpy as np
import tvm
from tvm.runtime.vm import VirtualMachine

library, given, result = sys.argv[1:]
module = tvm.runtime.load_module(library)
with np.load(given) as file:
    tensors = [tvm.runtime.tensor(file[name]) for name in file.files]
if module.implements_function("vm_load_executable"):
    output = VirtualMachine(module, tvm.cpu())["main"](*tensors)
else:
    module["main"](*tensors)
    output = tensors[-1]
np.save(result, output.numpy())
