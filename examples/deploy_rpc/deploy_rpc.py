"""Compile a network here, and run it on two other machines at once, through TVM's RPC.

Without arguments the two machines are this one: a tracker and two servers are started on it. With
--tracker HOST:PORT --key KEY they are yours; see README.md.
"""

import argparse
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnxruntime

import byoc
import byoc.rpc

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the network
from byoc import zoo


def main(tracker: str, key: str, folder: Path) -> bool:
    """Whether both machines answer as ONNX Runtime does."""
    # 1. Compile as for this machine: one library with everything inside.
    network = zoo.build("squeezenet", size=96)
    compiled = byoc.compile(network, folder / "squeezenet.so")
    print(f"{len(compiled.report.regions)} region, {len(compiled.report.left)} operators outside")

    # 2. Ask the tracker for two machines. They are ours until the sessions are closed.
    sessions = [byoc.rpc.connect_tracker(tracker, key, timeout=60) for _ in range(2)]

    # 3. Upload the library to both, run it there, and let each tell how long a run takes on it.
    image = np.random.default_rng(0).standard_normal((1, 3, 96, 96), np.float32)

    def work(session: byoc.rpc.Session) -> tuple[str, np.ndarray, list[float]]:
        with session:
            model = session.load(folder / "squeezenet.so", threads=1)
            answer = model.run({"image": image})["probabilities"]
            return session.name, answer, model.time({"image": image}, runs=20)

    with ThreadPoolExecutor(len(sessions)) as pool:
        results = list(pool.map(work, sessions))

    # 4. Both answers are those of ONNX Runtime on this machine.
    session = onnxruntime.InferenceSession(network.SerializeToString())
    (expected,) = session.run(None, {"image": image})
    good = True
    for name, answer, milliseconds in results:
        error = np.abs(answer - expected).max() / np.ptp(expected)
        good &= bool(error <= 1e-4)
        print(f"{name}: {np.median(milliseconds):.2f} ms; class {answer.argmax()}; ", end="")
        print(f"differs from ONNX Runtime by {error:.0e} of the range")
    return good


# ---------------------------------------------------------------- what is not about deployment


@contextmanager
def two_servers_here():
    """A tracker and two servers of TVM's on this machine; the tracker's address."""
    from tvm.rpc import Server
    from tvm.rpc.tracker import Tracker

    os.environ["TVM_USE_RUNTIME_LIB"] = "1"  # for the servers: they need no compiler
    here, ports = "127.0.0.1", {"port": 30000, "port_end": 39000, "silent": True}
    tracker, servers = Tracker(here, **ports), []
    try:
        for _ in range(2):
            servers.append(Server(here, tracker_addr=(here, tracker.port), key="board", **ports))
        yield f"{here}:{tracker.port}"
    finally:
        for server in servers:
            server.terminate()
        tracker.terminate()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tracker", metavar="HOST:PORT", help="a tracker of yours")
    parser.add_argument("--key", default="board", help="the key of its servers (default: board)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.tracker:
            good = main(options.tracker, options.key, Path(folder))
        else:
            with two_servers_here() as address:
                good = main(address, options.key, Path(folder))
    sys.exit(0 if good else 1)
