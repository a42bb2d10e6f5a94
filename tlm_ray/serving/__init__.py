"""A trained model behind HTTP, by Ray Serve."""

from tlm_ray.serving.bodies import Limits, Refused
from tlm_ray.serving.service import Service, build, start, stop

__all__ = ["Limits", "Refused", "Service", "build", "start", "stop"]
