"""Families of encoders, and of models with a decoder, one file each: configuration, number of parameters, attention.

To add your own, derive a frozen dataclass from `Family` and pass it as `Geometry(family=...)`.
"""

from tlm_ray.training.encoders.families.albert import Albert
from tlm_ray.training.encoders.families.bert import Bert
from tlm_ray.training.encoders.families.distilbert import DistilBert
from tlm_ray.training.encoders.families.electra import Electra
from tlm_ray.training.encoders.families.family import FAMILIES, Family, Geometry, fastest_attention
from tlm_ray.training.encoders.families.gpt2 import Gpt2
from tlm_ray.training.encoders.families.modernbert import ModernBert
from tlm_ray.training.encoders.families.t5 import T5

__all__ = [
    "FAMILIES",
    "T5",
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

ALL = (Albert(), Bert(), DistilBert(), Electra(), Gpt2(), ModernBert(), T5())
FAMILIES |= {family.name: family for family in ALL}
