"""A folder of pictures in, Parquet out: ``python classify_folder.py MODEL.so PICTURES RESULTS``.

On a cluster, start it with ``ray job submit``, with paths that every node has.  A picture that
cannot be read is a row whose column ``error`` says why. RESULTS must not exist yet.
"""

import io
import sys

import numpy as np
import ray.data
from PIL import Image

import byoc
from byoc.integrations.ray import Predictor

if len(sys.argv) != 4:
    sys.exit(__doc__)
library, pictures, results = sys.argv[1:]
image = byoc.load(library).inputs[0]  # float32[batch, 3, height, width]
height, width = image.shape[2:]


def prepare(content: bytes) -> np.ndarray:
    """The bytes of a picture as a row of the network's input."""
    picture = Image.open(io.BytesIO(content)).convert("RGB").resize((width, height))
    return (np.asarray(picture, np.float32) / 255).transpose(2, 0, 1)


predictor = Predictor(library, inputs={image.name: "bytes"}, prepare={image.name: prepare})
rows = ray.data.read_binary_files(pictures, include_paths=True)
scores = rows.map_batches(predictor, batch_size=32, num_cpus=1)
scores.write_parquet(results, mode=ray.data.SaveMode.ERROR)  # never beside an earlier job's rows
