"""Jobs on a local Ray cluster of several nodes: ``python -m tests.integrations.ray_jobs FOLDER``.

The folder holds libraries and ``pictures.npy``. One cluster serves all jobs.
Prints one line of JSON with what each of them gave. Runs where Ray is installed, and no ONNX is.
"""

from __future__ import annotations

import io
import json
import logging
import os
import runpy
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import ray
import ray.data
from PIL import Image
from ray.cluster_utils import Cluster

from byoc.errors import ByocError
from byoc.integrations.ray import Predictor

NODES = 3
_STORE = 80 << 20
_CPUS = 1


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


class Watched(Predictor):
    """Says which process computed a row, with how many threads, and what it has of the library."""

    def __call__(self, rows: Any) -> dict[str, np.ndarray]:
        import tvm_ffi

        found = super().__call__(rows)
        count = len(found["error"])
        threads = tvm_ffi.get_global_func("runtime.NumThreads")()
        kilobytes = {"Rss": 0, "Anonymous": 0}
        is_library = False
        for line in Path("/proc/self/smaps").read_text().splitlines():
            key, _, rest = line.partition(":")
            if key in kilobytes and is_library:
                kilobytes[key] += int(rest.split()[0])
            elif "-" in key.split()[0]:
                is_library = line.endswith(self.path.name)
        seen = {"process": os.getpid(), "threads": threads, **kilobytes}
        return found | {name: np.full(count, value) for name, value in seen.items()}


class Dying(Predictor):
    """Its process is killed at the row ``fatal``, once; what comes later waits for a node to go."""

    killed: Path
    removed: Path
    fatal: int

    def __call__(self, rows: Any) -> dict[str, np.ndarray]:
        if self.fatal in rows["id"] and not self.killed.exists():
            self.killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        while self.killed.exists() and not self.removed.exists():
            time.sleep(0.02)
        return super().__call__(rows)


def columns(dataset: ray.data.Dataset) -> dict[str, list]:
    """All rows, in the order of their ids, a list for each column."""
    rows = sorted(dataset.take_all(), key=lambda row: row["id"])
    return {name: [np.asarray(row[name]).tolist() for row in rows] for name in rows[0]}


def plain(folder: Path, images: np.ndarray) -> dict[str, list]:
    """23 rows in batches of 8, in calls of 5 rows at most."""
    rows = ray.data.from_items([{"id": i, "image": image} for i, image in enumerate(images)])
    predictor = Watched(folder / "classifier.so", batch=5)
    return columns(rows.map_batches(predictor, batch_size=8, num_cpus=_CPUS))


def folder_of_pictures(folder: Path, pixels: np.ndarray) -> dict[str, list]:
    """The example, on PNG files of which number 3 is cut off."""
    (folder / "pictures").mkdir()
    for number, one in enumerate(pixels):
        content = png(one)
        cut = len(content) // 2 if number == 3 else len(content)
        (folder / "pictures" / f"{number:02}.png").write_bytes(content[:cut])
    example = Path("examples", "deploy_ray", "classify_folder.py")
    names = ("classifier.so", "pictures", "results")
    sys.argv = [str(example), *(str(folder / name) for name in names)]
    runpy.run_path(str(example), run_name="__main__")
    try:  # rows of two jobs in one folder would be doubled
        runpy.run_path(str(example), run_name="__main__")
        raise AssertionError("a second job wrote beside the first one's rows")
    except ValueError as error:
        assert "results already exists" in str(error)
    table = parquet.read_table(folder / "results").sort_by("path")
    rows = table.to_pylist()
    return {name: [np.asarray(row[name]).tolist() for row in rows] for name in table.column_names}


def uneven(folder: Path, images: np.ndarray) -> dict[str, list]:
    """Rows in this process, the last of them of another size."""
    rows = np.empty(5, object)
    for number in range(5):
        rows[number] = images[number] if number < 4 else images[number][:, :8]
    found = Predictor(folder / "classifier.so")({"image": rows, "id": np.arange(5)})
    return {name: column.tolist() for name, column in found.items()}


def losses(folder: Path, images: np.ndarray, cluster: Cluster, node: Any) -> dict[str, list]:
    """One worker is killed, and one node removed, while the job runs."""
    blocks = 12
    rows = ray.data.range(blocks * 4, override_num_blocks=blocks).map_batches(
        lambda batch: {"id": batch["id"], "image": images[batch["id"] % len(images)]}
    )
    predictor = Dying(folder / "classifier.so")
    predictor.killed, predictor.removed, predictor.fatal = folder / "killed", folder / "gone", 21

    def remove() -> None:
        while not predictor.killed.exists():
            time.sleep(0.02)
        cluster.remove_node(node, allow_graceful=False)
        while sum(node["Alive"] for node in ray.nodes()) == NODES:
            time.sleep(0.02)
        predictor.removed.touch()

    thread = threading.Thread(target=remove)
    thread.start()
    found = columns(rows.map_batches(predictor, batch_size=4, num_cpus=_CPUS))
    thread.join()
    alive = sum(node["Alive"] for node in ray.nodes())
    return found | {"killed": [predictor.killed.exists()], "alive": [alive]}


def said(make: Any) -> str:
    """The error that something raises."""
    try:
        make()
    except ByocError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def wrong(folder: Path, images: np.ndarray) -> dict[str, str]:
    """What is refused, and how."""
    library = folder / "classifier.so"
    predictor = Predictor(library)
    doubles = {"image": images.astype("f8")}
    return {
        "foreign": said(lambda: Predictor(folder / "foreign.so")),
        "missing": said(lambda: Predictor(folder / "none.so")),
        "input": said(lambda: Predictor(library, inputs={"picture": "bytes"})),
        "fixed": said(lambda: Predictor(folder / "fixed.so")),
        "column": said(lambda: predictor({"x": images})),
        "dtype": said(lambda: predictor(doubles)),
    }


def main() -> None:
    """Run all jobs."""
    start = time.perf_counter()
    folder = Path(sys.argv[1])
    pixels = np.load(folder / "pictures.npy")
    images = (pixels.astype("f4") / 255).transpose(0, 3, 1, 2)
    args = {
        "object_store_memory": _STORE,
        "include_dashboard": False,
        "include_log_monitor": False,
    }
    cluster = Cluster(initialize_head=True, head_node_args={**args, "num_cpus": 0})
    nodes = [cluster.add_node(wait=False, num_cpus=_CPUS, **args) for _ in range(NODES - 1)]
    ray.init(cluster.address, logging_level=logging.WARNING, log_to_driver=False)
    cluster.wait_for_nodes(timeout=120)
    ray.data.DataContext.get_current().enable_progress_bars = False
    result: dict[str, Any] = {}
    spent: dict[str, float] = {"start": time.perf_counter() - start}
    for name, job in {
        "wrong": lambda: wrong(folder, images),
        "plain": lambda: plain(folder, images),
        "uneven": lambda: uneven(folder, images),
        "example": lambda: folder_of_pictures(folder, pixels),
        "losses": lambda: losses(folder, images, cluster, nodes[-1]),
    }.items():
        begin = time.perf_counter()
        result[name] = job()
        spent[name] = time.perf_counter() - begin
    print(spent, file=sys.stderr)
    ray.shutdown()
    cluster.shutdown()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
