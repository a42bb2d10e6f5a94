"""Families of encoders, and of one decoder, one file each: configuration, number of parameters and attention.

To add your own, derive a frozen dataclass from `Family` and pass it as `Geometry(family=...)`.
"""

from tlm_ray.training.families.albert import Albert
from tlm_ray.training.families.bert import Bert
from tlm_ray.training.families.distilbert import DistilBert
from tlm_ray.training.families.electra import Electra
from tlm_ray.training.families.family import FAMILIES, Family, Geometry, fastest_attention
from tlm_ray.training.families.gpt2 import Gpt2
from tlm_ray.training.families.modernbert import ModernBert

__all__ = [
    "FAMILIES",
    "Albert",
    "Bert",
    "DistilBert",
    "Electra",
    "Family",
    "Geometry",
    "Gpt2",
    "ModernBert",
    "fastest_attention",
]

FAMILIES |= {family.name: family for family in (Albert(), Bert(), DistilBert(), Electra(), Gpt2(), ModernBert())}
