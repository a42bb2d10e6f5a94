"""What a training costs, counted as the paper counts it: six operations a token and parameter.

The rule charges a forward and a backward pass through every weight and leaves out attention over
the block, so a figure says nothing of padding or hardware; it compares trainings, no more.
"""

import math


def training_flops(*, steps: int, batch_rows: int, block_tokens: int, parameters: int) -> int:
    """Return the floating-point operations of a training: 6 x tokens x parameters.

    `steps` are optimizer steps, `batch_rows` the rows of one step over all workers, `block_tokens`
    the tokens a row can hold (filled or not). Raises ValueError for a negative count.
    Source: note to Table 2 of Yao et al. (2022).
    """
    counts = {
        "steps": steps,
        "batch_rows": batch_rows,
        "block_tokens": block_tokens,
        "parameters": parameters,
    }
    for name, count in counts.items():
        if count < 0:
            raise ValueError(f"{name} is {count}; a count of 0 or more is allowed")
    return 6 * (steps * batch_rows * block_tokens) * parameters


def encoder_parameters(
    *, layers: int, width: int, intermediate: int, vocabulary: int, positions: int, family: str = "bert"
) -> int:
    """Return the parameters of an encoder with its masked-language-model head, of BERT or of ModernBERT.

    All five are sizes of the usual configuration (width: hidden size; intermediate: inner size of
    the feed-forward part). The head's output matrix is the word embedding (tied), counted once;
    there is no pooler, and the number of attention heads does not matter. With a vocabulary of
    30,522 and 512 positions, base has 109,514,298 and large 335,174,458.
    """
    if family == "modernbert":  # no shifts, no learned positions; the first layer's attention has no norm of its own
        layer = 4 * width**2 + 3 * width * intermediate + 2 * width
        return vocabulary * width + width + layers * layer - width + width + width**2 + width + vocabulary
    norm = 2 * width  # scale and shift
    segments = 2
    embeddings = (vocabulary + positions + segments) * width + norm
    attention = 4 * _dense(width, width) + norm  # query, key, value, output
    feed_forward = _dense(width, intermediate) + _dense(intermediate, width) + norm
    head = _dense(width, width) + norm + vocabulary  # transform, norm, output bias
    return embeddings + layers * (attention + feed_forward) + head


def _dense(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def human(flops: float) -> str:
    """Return a count of operations as the paper prints it, such as "2.74E18"."""
    if not math.isfinite(flops) or flops < 0:
        raise ValueError(f"flops is {flops}; a finite count of 0 or more is allowed")
    mantissa, exponent = f"{flops:.2E}".split("E")
    return f"{mantissa}E{int(exponent)}"
