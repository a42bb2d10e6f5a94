"""A model of two layers that share a weight, trained for a few steps, and what is done to its checkpoints."""

import torch
from torch import nn

from tlm_ray.training.loop.checkpoints import load_checkpoint


class Tied(nn.Module):
    """Two layers that share a weight, and a buffer."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.embed, self.out = nn.Embedding(7, 5), nn.Linear(5, 7)
        self.out.weight = self.embed.weight
        self.register_buffer("places", torch.arange(3))

    def forward(self, ids):
        return self.out(self.embed(ids))


def make_optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.1, fused=True)


def take_steps(model, optimizer, first, last):
    for step in range(first, last):
        torch.manual_seed(step)
        ids = torch.randint(0, 7, (16,))
        loss = nn.functional.cross_entropy(model(ids), ids.flip(0))
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()


def make_trained():
    model = Tied(0)
    optimizer = make_optimizer(model)
    take_steps(model, optimizer, 0, 5)
    return model, optimizer


def restore(folder, seed=1):
    model = Tied(seed)
    optimizer = make_optimizer(model)
    progress, best = load_checkpoint(str(folder), model, optimizer)
    return model, optimizer, progress, best


def change(folder, name, damage):
    file = folder / name
    data = bytearray(file.read_bytes())
    if damage == "truncated":
        del data[-1:]
    elif damage == "one bit":
        data[len(data) // 2] ^= 4
    file.unlink()
    if damage != "missing":
        file.write_bytes(data)
