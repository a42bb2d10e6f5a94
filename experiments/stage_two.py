"""What stage two is worth: the task head of stage one against stage two's (Yao et al. 2022, table 7), on dev scores.

    python experiments/stage_two.py                                                      # embedded data
    python experiments/stage_two.py --scale small --tasks ag imdb chemprot citation_intent --corpus s3://... ...
    python experiments/stage_two.py --dry-run

Expected before running: both stages above stage one alone, by most where it sees few labels.
"""

from dataclasses import dataclass, replace

import ray

from tlm_ray import Recipe, Table, parse, plain_errors, present, ray_options
from tlm_ray.report.paper import TABLE_7


@dataclass(frozen=True, kw_only=True)
class StageTwo(Table):
    """Options of the table of stages."""

    name, paper = "stage_two", TABLE_7

    def vary(self, recipe: Recipe) -> dict[str, Recipe]:
        """Leave stage two out."""
        return {"both stages": recipe, "stage one alone": replace(recipe, one_stage=True)}

    def expected(self, rows: list[str]) -> list[tuple[str, str]]:
        """Both are better."""
        both, alone = rows
        return [(both, alone)]


if __name__ == "__main__":
    with plain_errors():
        present(parse(StageTwo, __doc__), connect=lambda: ray.init(**ray_options()))
