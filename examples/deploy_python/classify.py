"""Run a compiled classifier with TVM's runtime alone: ``python classify.py MODEL.so [IMAGE.npy]``.

Without an image it takes random numbers, the same in every run.  Prints the five best classes.
"""

import sys

import numpy as np

import byoc

model = byoc.load(sys.argv[1])
(wanted,) = model.inputs  # its name, shape and dtype
if len(sys.argv) > 2:
    image = np.load(sys.argv[2])
else:
    image = np.random.default_rng(0).standard_normal(wanted.shape, np.float32)

scores = model(image)[0]
for number in np.argsort(scores)[::-1][:5]:
    print(f"{scores[number]:.7f}  class {number}")
