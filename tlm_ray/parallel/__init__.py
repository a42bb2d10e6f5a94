"""Run work on the cluster: wide steps on Ray Data (`each`), small ones as Ray tasks (`ray_tasks`, `on_worker`)."""

from tlm_ray.parallel.datasets import dataset_of
from tlm_ray.parallel.items import each
from tlm_ray.parallel.local import in_this_process
from tlm_ray.parallel.tasks import on_worker, ray_tasks

__all__ = ["dataset_of", "each", "in_this_process", "on_worker", "ray_tasks"]
