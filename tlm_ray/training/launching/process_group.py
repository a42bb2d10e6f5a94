"""Connect the workers of a training on CPUs; a separate module, because it imports torch (1.5 s)."""

import os
from typing import Any

import psutil
import ray
from ray.train.backend import Backend
from ray.train.torch import TorchConfig


class Gloo(TorchConfig):
    """Gloo on the network interface of the address that Ray uses for the node.

    By default Gloo uses the address of the host name. On Debian this is 127.0.1.1, which other hosts cannot reach.
    """

    def __init__(self) -> None:
        super().__init__(backend="gloo")

    @property
    def backend_cls(self) -> type[Backend]:
        """The backend that Ray Train starts."""
        return _OnRaysInterface


class _OnRaysInterface(Backend):
    """Torch's backend, after each worker has chosen its interface."""

    def __init__(self) -> None:
        self.torch = TorchConfig().backend_cls()

    def on_start(self, worker_group: Any, backend_config: Any) -> None:
        worker_group.execute(_choose_interface)
        self.torch.on_start(worker_group, backend_config)

    def on_training_start(self, worker_group: Any, backend_config: Any) -> None:
        self.torch.on_training_start(worker_group, backend_config)

    def on_shutdown(self, worker_group: Any, backend_config: Any) -> None:
        self.torch.on_shutdown(worker_group, backend_config)


def _choose_interface() -> None:
    """Set the interface for Gloo, unless the user has set it."""
    address = ray.util.get_node_ip_address()
    for name, addresses in psutil.net_if_addrs().items():
        if address in (each.address for each in addresses):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
