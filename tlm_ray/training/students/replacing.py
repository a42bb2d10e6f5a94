"""Replace words by what a masked language model would write there, to make rows for a teacher to label.

Source: Jiao et al. 2020 (TinyBERT), section 3.2, with its numbers. It masks one word at a time; here all chosen words
of a row are masked at once, which takes one pass per row. Words of several pieces, for which it has GloVe's neighbours,
are kept.
"""

from collections.abc import Iterator

import numpy as np
import torch

from tlm_ray.training.model.joint import JointModel
from tlm_ray.training.objectives import Mlm
from tlm_ray.training.sampler.batches import padded_inputs
from tlm_ray.training.tokens.blocks import Blocks
from tlm_ray.training.tokens.masking import Vocabulary

CHOSEN = 0.4  # share of the words to replace
CANDIDATES = 15  # likeliest tokens, of which one is drawn
ROWS = 64  # rows predicted together


def replaced(rows: Blocks, times: int, model: JointModel, vocabulary: Vocabulary, *, device: str) -> Blocks:
    """Return `times` as many rows, without labels, with some words replaced; draws are the same in each call.

    model: has an `Mlm` head.
    """
    generator = np.random.default_rng(0)
    tokens = np.tile(rows.tokens[: rows.offsets[-1]], times)
    offsets = np.concatenate([[0], np.cumsum(np.tile(rows.lengths, times))])
    types = None if rows.types is None else np.tile(rows.types[: rows.offsets[-1]], times)
    chosen = _single_words(tokens, vocabulary) & (generator.random(len(tokens)) < CHOSEN)
    draws = generator.integers(CANDIDATES, size=len(tokens))
    assert vocabulary.mask_id is not None, "the tokenizer of a masked language model"
    masked = Blocks(np.where(chosen, vocabulary.mask_id, tokens), offsets, types)
    found = tokens.copy()
    for places, candidates in _predicted(model.eval(), masked, chosen, vocabulary, device):
        found[places] = np.take_along_axis(candidates, draws[places][:, None], axis=1)[:, 0]
    return Blocks(found, offsets, types)


def _single_words(tokens: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
    """Return which tokens are whole words, bool (tokens,)."""
    special = np.isin(tokens, vocabulary.special_ids)  # without the mark of a word's begin, so among continuing_ids
    continues = np.isin(tokens, vocabulary.continuing_ids) & ~special
    followed = np.append(continues[1:], False)
    return ~(continues | followed | special)


@torch.no_grad()
def _predicted(
    model: JointModel, rows: Blocks, chosen: np.ndarray, vocabulary: Vocabulary, device: str
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield flat places of chosen tokens, and the likeliest tokens of each, (places, CANDIDATES)."""
    head, order = model.heads[Mlm.name], np.argsort(rows.lengths, kind="stable")
    special = torch.tensor(vocabulary.special_ids, device=device)
    for start in range(0, len(order), ROWS):
        inputs, places = padded_inputs(rows, order[start : start + ROWS], vocabulary.pad_id)
        inside = chosen[places] & (inputs["attention_mask"] == 1)
        if not inside.any():
            continue
        hidden = model.encode({name: torch.from_numpy(array).to(device) for name, array in inputs.items()})
        states = head(hidden.flatten(0, 1)[torch.from_numpy(inside.ravel()).to(device)][None])[0]
        logits = torch.nn.functional.linear(states, head.last.weight, head.last.bias).float()
        logits[:, special] = -torch.inf
        yield places[inside], logits.topk(CANDIDATES).indices.cpu().numpy()
