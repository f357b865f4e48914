"""Fixtures that several files here use."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.rpc_servers import server, tracker


class Cluster:
    """A tracker, two servers that it gives away under the key ``board``, and one with a key."""

    def __init__(self, folder: Path) -> None:
        self.peers = [tracker(folder)]
        try:
            self.tracker = self.peers[0].address
            for _ in range(2):
                of_tracker = ("--tracker", self.tracker, "--key", "board")
                self.peers.append(server(folder, *of_tracker))
            self.peers.append(server(folder, "--key", "secret"))
            self.boards = self.peers[1:3]
            self.direct_server = self.peers[3]
            self.direct = self.direct_server.address
            self._wait_for_boards()
        except BaseException:
            self.stop()
            raise

    def _wait_for_boards(self) -> None:
        from byoc.rpc.tracker import Tracker

        end = time.monotonic() + 60
        while Tracker(self.tracker).devices()["board"] < len(self.boards):
            assert time.monotonic() < end, "\n".join(board.said() for board in self.boards)
            time.sleep(0.05)

    def stop(self) -> None:
        """End all of them."""
        for peer in self.peers:
            peer.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """TVM's tracker and servers for all tests that leave them as they were."""
    cluster = Cluster(tmp_path_factory.mktemp("rpc"))
    yield cluster
    cluster.stop()
