"""Small data whose classes speak of different things."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

TOPICS = {
    "sea": "wave tide harbour sail anchor current reef fish net storm salt shore buoy deck crew".split(),
    "sky": "cloud wing star comet orbit moon lift drag pilot cabin runway radar jet thermal dusk".split(),
    "kitchen": "flour oven knead simmer garlic butter whisk broth pepper dough roast skillet sugar herb mince".split(),
}
COMMON = "the a of and to in is it that for on with as by from at this or an are".split()


def sentences(generator: np.random.Generator, topic: str, count: int) -> str:
    """Make sentences of common words and words of a topic."""
    made = []
    for _ in range(count):
        words = [
            str(generator.choice(TOPICS[topic] if generator.random() < 0.5 else COMMON))
            for _ in range(generator.integers(6, 14))
        ]
        made.append(" ".join(words).capitalize() + ".")
    return " ".join(made)


def write_small(folder: Path) -> None:
    """Write corpus/*.parquet (400 documents) and tasks/topics/{train,dev,test}.parquet (60, 24, 24 rows)."""
    generator = np.random.default_rng(0)
    (folder / "corpus").mkdir(parents=True)
    (folder / "tasks" / "topics").mkdir(parents=True)
    for part in range(4):
        texts = [
            sentences(generator, str(generator.choice(list(TOPICS))), int(generator.integers(1, 9))) for _ in range(100)
        ]
        pq.write_table(pa.table({"text": texts}), folder / "corpus" / f"part-{part}.parquet")
    for split, rows in (("train", 60), ("dev", 24), ("test", 24)):
        labels = [list(TOPICS)[i % 3] for i in range(rows)]
        texts = [sentences(generator, label, 2) for label in labels]
        pq.write_table(pa.table({"text": texts, "label": labels}), folder / "tasks" / "topics" / f"{split}.parquet")
