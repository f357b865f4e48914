"""python app.py MODEL.so INPUT.npy...: print what a network answers, as JSON."""

import json
import sys

import numpy as np

import byoc

if len(sys.argv) < 2:
    sys.exit(__doc__)
model = byoc.load(sys.argv[1])
names = [info.name for info in model.inputs]
if len(sys.argv[2:]) != len(names):
    sys.exit(f"{len(sys.argv[2:])} files given; the network takes {', '.join(names)}")
answers = model.run(dict(zip(names, map(np.load, sys.argv[2:]), strict=True)))
print(json.dumps({name: value.tolist() for name, value in answers.items()}))
