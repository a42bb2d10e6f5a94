"""Self-contained HTML pages of experiments and sweeps."""

from tlm_ray.report.page.experiment import experiment_page
from tlm_ray.report.page.sweep import sweep_page

__all__ = ["experiment_page", "sweep_page"]
