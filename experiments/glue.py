"""Compare TLM with pretrained encoders on GLUE (Yao et al. 2022, table 10); dev sets replace the secret test sets.

    python experiments/glue.py --scale small --corpus s3://... --baseline google-bert/bert-base-uncased
    python experiments/glue.py --tasks cola rte stsb mrpc --task-root data/tasks --corpus data/corpus     # a laptop
    python experiments/glue.py --dry-run

A metric that is the mean of two is shown with both: accuracy and F1 (MRPC, QQP), Pearson's and Spearman's correlation
(STS-B). mnli is scored on matched text, mnli-mm on mismatched.
Expected: TLM above TF-IDF, and within a point of BERT-Base on average, as in the paper.
"""

from dataclasses import dataclass, field

import ray

from tlm_ray import Data, Flow, Recipe, Table, TfIdf, main
from tlm_ray.report.paper import TABLE_10

TLM = "TLM"
GLUE = ["cola", "rte", "stsb", "mrpc", "qqp", "sst2", "qnli", "mnli", "mnli-mm"]


@dataclass(frozen=True, kw_only=True)
class Glue(Table):
    """Options of the GLUE table."""

    name, split, paper, ensembles, pooled = "glue", "test", TABLE_10, (TLM,), True

    data: Data = field(default_factory=lambda: Data(tasks=GLUE))
    baseline: list[str] = field(default_factory=list)
    """pretrained encoders to fine-tune as baselines: hub names or local folders"""

    def vary(self, recipe: Recipe) -> dict[str, Recipe]:
        """Return one recipe."""
        return {TLM: recipe}

    def recipes(self, task: str, flow: Flow) -> dict[str, Recipe]:
        """Return the recipe and a row per pretrained encoder."""
        recipe = self.recipe(task, flow, self.mixture)
        tuned = {start: self.fine_tuned(start, "plain", task, flow, self.mixture) for start in self.baseline}
        return self.vary(recipe) | tuned

    def expected(self, rows: list[str]) -> list[tuple[str, str]]:
        """Return the expectations that a table can test; being within a point of another row is not one."""
        return [(TLM, TfIdf.name)]

    def main_row(self, rows: list[str]) -> str:
        """Ours."""
        return TLM


if __name__ == "__main__":
    main(Glue, __doc__, ray.init)
