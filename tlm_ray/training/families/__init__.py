"""Families of encoders, one file each: a family knows its configuration, its parameters and its attention.

A family of your own is a frozen dataclass that derives from `Family`, given as `Geometry(family=...)`.
"""

from tlm_ray.training.families.bert import Bert
from tlm_ray.training.families.family import Family, fastest_attention
from tlm_ray.training.families.geometry import FAMILIES, Geometry
from tlm_ray.training.families.modernbert import ModernBert

__all__ = ["FAMILIES", "Bert", "Family", "Geometry", "ModernBert", "fastest_attention"]
