"""python app.py MODEL.so INPUT.npy...: print what a network answers, as JSON."""

import json
import sys

import numpy as np

import byoc

model = byoc.load(sys.argv[1])
names = [info.name for info in model.inputs]
answers = model.run(dict(zip(names, map(np.load, sys.argv[2:]), strict=True)))
print(json.dumps({name: value.tolist() for name, value in answers.items()}))
