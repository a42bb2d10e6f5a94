"""Pages that need no other file: of an experiment, and of a sweep."""

from tlm_ray.report.page.experiment import experiment_page
from tlm_ray.report.page.sweep import sweep_page

__all__ = ["experiment_page", "sweep_page"]
