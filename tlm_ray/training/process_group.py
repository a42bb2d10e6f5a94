"""The network between a training's workers on CPUs. A module of its own: it imports torch (1.5 s)."""

import os
from typing import Any

import psutil
import ray
from ray.train.torch import TorchConfig
from ray.train.torch.config import _TorchBackend


class Gloo(TorchConfig):
    """Gloo over the network interface that has the address by which Ray knows a node.

    By itself Gloo takes the address of the host's name, which is 127.0.1.1 on Debian: no other host reaches that.
    """

    def __init__(self) -> None:
        super().__init__(backend="gloo")

    @property
    def backend_cls(self) -> type["_Backend"]:
        """What Ray Train starts."""
        return _Backend


class _Backend(_TorchBackend):
    def on_start(self, worker_group: Any, backend_config: Any) -> None:
        worker_group.execute(_choose_interface)
        super().on_start(worker_group, backend_config)


def _choose_interface() -> None:
    """Name the interface for Gloo, unless a user has."""
    address = ray.util.get_node_ip_address()
    for name, addresses in psutil.net_if_addrs().items():
        if address in (each.address for each in addresses):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
