"""Compare both stages with stage one alone, by its task head (Yao et al. 2022, table 7), on dev scores.

    python experiments/stage_two.py                                                      # embedded data
    python experiments/stage_two.py --scale small --tasks ag imdb chemprot citation_intent --corpus s3://... ...
    python experiments/stage_two.py --dry-run

Expected: both stages above stage one alone, most of all with few labels.
"""

from dataclasses import dataclass, replace

import ray

from tlm_ray import Recipe, Table, main
from tlm_ray.report.paper import TABLE_7


@dataclass(frozen=True, kw_only=True)
class StageTwo(Table):
    """Options of the table of stages."""

    name, paper = "stage_two", TABLE_7

    def vary(self, recipe: Recipe) -> dict[str, Recipe]:
        """Return a row with both stages and one without stage two."""
        return {"both stages": recipe, "stage one alone": replace(recipe, one_stage=True)}

    def expected(self, rows: list[str]) -> list[tuple[str, str]]:
        """Expect both stages to be better."""
        both, alone = rows
        return [(both, alone)]


if __name__ == "__main__":
    main(StageTwo, __doc__, ray.init)
