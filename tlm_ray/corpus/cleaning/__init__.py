"""Clean a corpus before it is cut into passages: C4's rules, repeated spans, near-duplicates.

- `c4`: the rules for lines and pages of Raffel et al. 2020, section 2.2
- `languages`: how probable a language is for a page
- `spans`, `repeats`: spans of three sentences that occurred before
- `near`: pages that are nearly equal to an earlier one
- `job`: runs them over a corpus, on all CPU nodes
"""

from tlm_ray.corpus.cleaning.settings import Cleaning

__all__ = ["Cleaning"]
