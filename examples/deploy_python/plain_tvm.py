"""The same with TVM alone, without this package: ``python plain_tvm.py MODEL.so IMAGE.npy``.

TVM_USE_RUNTIME_LIB=1 makes TVM load its small runtime library instead of the compiler.
"""

import os
import sys

os.environ["TVM_USE_RUNTIME_LIB"] = "1"

import numpy as np
import tvm
from tvm.runtime.vm import VirtualMachine

if len(sys.argv) != 3:
    sys.exit(__doc__)
machine = VirtualMachine(tvm.runtime.load_module(sys.argv[1]), tvm.cpu())
scores = machine["main"](tvm.runtime.tensor(np.load(sys.argv[2]))).numpy()[0]
for number in np.argsort(scores)[::-1][:5]:
    print(f"{scores[number]:.7f}  class {number}")
