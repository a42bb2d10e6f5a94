"""Define each stage of a flow, given the stages that it reads; `flow` connects them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tlm_ray import parallel, storage
from tlm_ray.corpus.general.passages import WORK
from tlm_ray.retrieval import Analyzer
from tlm_ray.retrieval.methods import Method, Search
from tlm_ray.retrieval.selection import PART_ROWS
from tlm_ray.retrieval.statistics_job import collect_statistics
from tlm_ray.retrieval.united import write_united
from tlm_ray.runs.flow import work
from tlm_ray.runs.flow.data import DataFlow, of_numbers
from tlm_ray.runs.flow.earlier import of_other_corpora
from tlm_ray.runs.recipes.recipe import Recipe
from tlm_ray.runs.stages.stage import Stage
from tlm_ray.storage.digests import identity_of
from tlm_ray.training.cost import stage_one_cost, stage_two_cost
from tlm_ray.training.encoders.starts import Pretrained
from tlm_ray.training.launching.launch import train_stage
from tlm_ray.training.loop.progress import Follower
from tlm_ray.training.settings import CHECKPOINTS, MODEL, TASK_MODEL, Job, StageSettings
from tlm_ray.training.tokens.counts import Counts

TRAINING_VERSION = 5  # since version 5, MLM's head gets padded rows, and batches have fewer widths
MODELS = {"stage_one": TASK_MODEL, "stage_two": MODEL}  # the folder of a stage's classifier
Followers = Callable[[Stage], list[Follower]]


@dataclass(frozen=True, kw_only=True)
class FlowStages(DataFlow):
    """The sources of data, and each stage that can be made of them."""

    followers: Followers = lambda stage: []
    """returns the followers of a training stage, which get its history while it runs"""

    def statistics(self, passages: Stage, analyzer: Analyzer) -> Stage:
        """Return the stage of document frequencies and mean length over the whole corpus."""
        run = self.execution

        def make(folder: str, inputs: Mapping[str, str]) -> dict[str, Any]:
            how: dict[str, Any] = {"shards": run.shards, "workers": run.workers}
            earlier = of_other_corpora(stage, run.root)
            return collect_statistics(folder, inputs["passages"], analyzer=analyzer, earlier=earlier, **how)

        stage = Stage(
            name="statistics",
            version=3,
            parameters={"analyzer": analyzer},
            inputs={"passages": passages},
            make=make,
            scratch=WORK,
            cost=_reading(passages, seconds=20.0),
        )
        return stage

    def neighbours(self, recipe: Recipe, passages: Stage, task: Stage, *, reading: Mapping[str, str]) -> Stage:
        """Return the stage of ranked passages that the method retrieves for the task's training texts.

        reading: of the task, see `DataFlow.reading`.
        """
        return _Sources(self, passages, task, recipe.depth, reading).neighbours(recipe.method)

    def united(self, chosen: Sequence[Stage], tasks: Sequence[Stage], *, reading: Mapping[str, str]) -> Stage:
        """Return the stage of what was retrieved for several tasks, each text once; reading: of all of them."""
        selections, several = _numbered("neighbours", chosen), _numbered("task", tasks)
        return Stage(
            name="united",
            version=1,
            parameters={"part_rows": PART_ROWS, **reading},
            inputs=selections | several,
            make=lambda folder, inputs: parallel.on_worker(
                write_united, folder, [inputs[name] for name in selections], [inputs[name] for name in several]
            ),
            cost={"seconds": 10.0},
        )

    def tokenizer(self, recipe: Recipe, tasks: Sequence[Stage], neighbours: Stage | None) -> Stage:
        """Return the stage of the tokenizer, for the selected and the tasks' text."""
        is_trained = recipe.tokenizer == "trained"
        reads_general = is_trained or recipe.start.fits_general
        k = recipe.vocabulary_k if reads_general and neighbours else None
        objectives = (*recipe.objectives, *recipe.auxiliary)
        sentinels = max(one.sentinels for one in objectives)
        trained = {"name": "trained", "vocabulary": recipe.vocabulary} | ({} if k is None else {"k": k})
        trained |= {"sentinels": sentinels} if sentinels else {}
        given: Any = identity_of(recipe.tokenizer)
        if pieces := recipe.start.pieces:
            given = {"name": given} | pieces | ({} if k is None else {"k": k})
        return Stage(
            name="tokenizer",
            version=2,
            parameters=trained if is_trained else given,
            inputs=_numbered("task", tasks) | _present(neighbours=neighbours if reads_general else None),
            make=lambda folder, inputs: parallel.on_worker(
                work.write_tokenizer,
                folder,
                dict(inputs),
                name=recipe.tokenizer,
                vocabulary=recipe.vocabulary,
                fit=recipe.start.fitted,
                k=k,
                needs=sorted({needed for one in objectives for needed in one.needs}),
                sentinels=sentinels,
            ),
            cost={"seconds": 10.0},
        )

    def blocks(self, recipe: Recipe, task: Stage, neighbours: Stage | None, tokenizer: Stage) -> Stage:
        """Return the stage of token blocks of the selected and the task's text."""
        lengths: dict[str, Any] = {"block_tokens": recipe.block_tokens, "task_tokens": recipe.task_tokens}
        return Stage(
            name="blocks",
            version=2,
            parameters=lengths,
            inputs=_present(task=task, tokenizer=tokenizer, neighbours=neighbours),
            make=lambda folder, inputs: parallel.on_worker(
                work.write_blocks, folder, dict(inputs), **lengths, workers=self.execution.workers
            ),
            cost={"seconds": 10.0},
        )

    def counts(self, recipe: Recipe, how: Counts, blocks: Stage) -> Stage:
        """Return the stage of initial token embeddings and output bias for stage one."""
        k = recipe.k if recipe.uses_general else 0
        shared: dict[str, Any] = {} if recipe.general_share == 1 or not k else {"share": recipe.general_share}
        width = recipe.start.width if how.embeddings else 0
        return Stage(
            name="counts",
            version=1,
            parameters={"counts": how, "k": k, "width": width} | shared,
            inputs={"blocks": blocks},
            make=lambda folder, inputs: parallel.on_worker(
                work.write_counts, folder, inputs["blocks"], how, k=k, width=width, **shared
            ),
            cost={"seconds": 10.0},
        )

    def stage_one(
        self,
        recipe: Recipe,
        blocks: Stage,
        counts: Stage | None,
        seed: int,
        *,
        after: Stage | None = None,
        teacher: Stage | None = None,
        further: Sequence[Stage] = (),
    ) -> Stage:
        """Return the stage of training on general and task batches.

        after: the stage one whose model it starts from. teacher: the one whose model it learns from. further: blocks of
        the recipe's tasks from the second on.
        """
        checkpoint = recipe.teacher if isinstance(recipe.teacher, Pretrained) else None

        def make(folder: str, inputs: Mapping[str, str]) -> dict[str, Any]:
            start = Pretrained(storage.join(inputs["after"], MODEL)) if after else recipe.start
            known = storage.join(inputs["teacher"], MODEL) if teacher else checkpoint.source if checkpoint else ""
            return self.train(stage, folder, inputs, replace(settings, start=start.beside(known), teacher=known))

        settings = recipe.settings_one(seed)
        stage = Stage(
            name="stage_one",
            version=TRAINING_VERSION,
            parameters=settings.identity
            | (self.scoring | of_numbers(blocks, *further) if settings.is_scored else {})
            | ({"teacher": checkpoint.identity} if checkpoint else {}),
            inputs=_numbered("blocks", [blocks, *further]) | _present(counts=counts, after=after, teacher=teacher),
            make=make,
            lane="train",
            scratch=CHECKPOINTS,
            cost=stage_one_cost(
                settings,
                block_tokens=recipe.block_tokens,
                task_tokens=recipe.task_tokens,
                vocabulary=recipe.vocabulary,
            ),
        )
        return stage

    def stage_two(
        self, recipe: Recipe, blocks: Stage, stage_one: Stage | None, seed: int, taught: Stage | None = None
    ) -> Stage:
        """Return the stage of training on the task alone, from stage one or from a pretrained encoder.

        taught: soft labels to learn.
        """

        def make(folder: str, inputs: Mapping[str, str]) -> dict[str, Any]:
            start = Pretrained(storage.join(inputs["stage_one"], MODEL)) if stage_one else recipe.start
            return self.train(stage, folder, inputs, recipe.settings_two(seed, start))

        stage = Stage(
            name="stage_two",
            version=TRAINING_VERSION,
            parameters=recipe.settings_two(seed, recipe.start).identity
            | ({} if stage_one else recipe.start.identity)
            | of_numbers(blocks)
            | self.scoring,
            inputs=_present(blocks=blocks, stage_one=stage_one, taught=taught),
            make=make,
            lane="train",
            scratch=CHECKPOINTS,
            cost=stage_two_cost(
                recipe.stage_two, recipe.start, task_tokens=recipe.task_tokens, vocabulary=recipe.vocabulary
            ),
        )
        return stage

    def train(self, stage: Stage, folder: str, inputs: Mapping[str, str], settings: StageSettings) -> dict[str, Any]:
        """Train a stage in its folder, and return its facts; a stage of a flow of your own calls it too."""
        read: dict[str, Any] = {name: inputs.get(name, "") for name in ("blocks", "counts", "taught")}
        read["further"] = tuple(location for name, location in inputs.items() if name.startswith("blocks_"))
        job = Job(folder=folder, **read, settings=settings, compute=self.execution.compute, metric=self.metric)
        return train_stage(job, followers=self.followers(stage))

    def metrics(self, recipe: Recipe, blocks: Stage, **trained: Stage | None) -> Stage:
        """Return a training's last stage: its scores on dev and test.

        trained: stage_two, or stage_one, whose task head is then scored.
        """
        compute = self.execution.compute
        (classifier,) = _present(**trained)
        options: dict[str, Any] = {
            "precision": recipe.precision,
            "device": "cuda" if compute.gpu else "cpu",
            "threads": 1,
        }
        return Stage(
            name="metrics",
            version=1,
            parameters={"precision": recipe.precision} | self.scoring,
            inputs=_present(blocks=blocks, **trained),
            make=lambda folder, inputs: parallel.on_worker(
                work.write_scores,
                folder,
                inputs["blocks"],
                storage.join(inputs[classifier], MODELS[classifier]),
                metric=self.metric,
                resources=dict(compute.resources),
                **options,
            ),
            lane="train",
            cost={"seconds": 10.0},
        )


@dataclass(frozen=True)
class _Sources:
    """The flow's stages that a retrieval method may read: see `tlm_ray.retrieval.methods.Sources`."""

    flow: FlowStages
    passages: Stage
    task: Stage
    depth: int
    reading: Mapping[str, str]

    def statistics(self, analyzer: Analyzer) -> Stage:
        return self.flow.statistics(self.passages, analyzer)

    def neighbours(self, method: Method) -> Stage:
        run = self.flow.execution
        gpus = run.compute.resources.get("GPU", 0)
        search = Search(depth=self.depth, shards=run.shards, workers=run.workers, gpus=gpus)

        def make(folder: str, inputs: Mapping[str, str]) -> dict[str, Any]:
            return method.find(folder, inputs, replace(search, earlier=of_other_corpora(stage, run.root)))

        stage = Stage(
            name="neighbours",
            version=method.version,
            parameters={**method.identity(self.depth), "part_rows": PART_ROWS, **self.reading},
            inputs=method.inputs(self),
            make=make,
            scratch=WORK,
            cost=_reading(self.passages, seconds=60.0),
        )
        return stage


def _reading(passages: Stage, *, seconds: float) -> Mapping[str, float]:
    """Return the cost of a stage that reads the corpus: its bytes, or for the embedded one the given seconds."""
    return {"bytes": passages.cost["bytes"]} if "bytes" in passages.cost else {"seconds": seconds}


def _numbered(name: str, stages: Sequence[Stage]) -> dict[str, Stage]:
    """Return several inputs of one kind: name, name_1, name_2, ..."""
    return {f"{name}_{number}" if number else name: stage for number, stage in enumerate(stages)}


def _present(**inputs: Stage | None) -> dict[str, Stage]:
    return {name: stage for name, stage in inputs.items() if stage is not None}
