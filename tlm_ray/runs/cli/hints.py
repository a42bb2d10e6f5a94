"""Say what an option of other tools is called here."""

from collections.abc import Sequence

from tlm_ray.console import console

RATE = "the rates are part of a recipe: choose a --scale, or write a recipe of your own (docs/extending.md)"
LENGTH = "the length of a training is --steps and --steps-two, or a budget: --minutes, --tokens or --part"
ROWS = "the rows per step are --batch-rows; --micro-rows saves memory and changes no result"
OTHERS = {
    "--lr": RATE,
    "--learning-rate": RATE,
    "--epochs": LENGTH,
    "--num-epochs": LENGTH,
    "--num-train-epochs": LENGTH,
    "--max-steps": LENGTH,
    "--batch-size": ROWS,
    "--train-batch-size": ROWS,
    "--seed": "give --seeds, a number of trainings: seeds 0, 1, ...",
    "--text-column": "the columns of the labelled texts are --text, --label and --pair; of a corpus --column",
    "--label-column": "the columns of the labelled texts are --text, --label and --pair",
    "--data": "the labelled texts are --tasks, the unlabelled ones --corpus",
    "--train-file": "give --tasks a file, or a folder with train, dev and test",
    "--dataset": "give --tasks a file, a folder, or a name of the paper's or GLUE's tasks",
    "--model-name": "give --start an encoder to adapt, or --architecture one to train from scratch",
    "--model-name-or-path": "give --start an encoder to adapt, or --architecture one to train from scratch",
    "--out": "a script without tables has no --out; a trained model is --model",
    "--output": "the trained model is --model, tables are --out, stages are --root",
    "--output-dir": "the trained model is --model, tables are --out, stages are --root",
    "--num-workers": "retrieval has --workers, a training --train-workers",
    "--gpus": "give --train-resources CPU=4 GPU=1, for each worker of a training",
    "--fp16": "give --precision bf16",
    "--bf16": "give --precision bf16",
}


def hint(words: Sequence[str]) -> None:
    """Print what each option among the words of a command line is called here, if it is another tool's."""
    for option in dict.fromkeys(word.partition("=")[0].replace("_", "-") for word in words):
        if option in OTHERS:
            console.print(f"{option}: {OTHERS[option]}", markup=False)
