"""Ask a server for a random picture's class: ``python ask.py HOST:REST_PORT HOST:GRPC_PORT``.

Triton's own clients, as they are: ``pip install 'tritonclient[http,grpc]'``.
"""

import sys

import numpy as np
import tritonclient.grpc
import tritonclient.http

if len(sys.argv) != 3:
    sys.exit(__doc__)
rest = tritonclient.http.InferenceServerClient(sys.argv[1])
grpc = tritonclient.grpc.InferenceServerClient(sys.argv[2])
assert rest.is_model_ready("classifier") and grpc.is_model_ready("classifier")
about = rest.get_model_metadata("classifier", "1")
image, scores = about["inputs"][0], about["outputs"][0]
picture = np.random.default_rng(0).random([1, *image["shape"][1:]], np.float32)

as_json = tritonclient.http.InferInput(image["name"], picture.shape, image["datatype"])
as_json.set_data_from_numpy(picture, binary_data=False)  # MLServer reads JSON alone over REST
answer = rest.infer("classifier", [as_json], "1").as_numpy(scores["name"])

as_bytes = tritonclient.grpc.InferInput(image["name"], picture.shape, image["datatype"])
as_bytes.set_data_from_numpy(picture)
same = grpc.infer("classifier", [as_bytes], "1").as_numpy(scores["name"])

print(f"class {answer.argmax()} over REST, {same.argmax()} over gRPC")
