"""How a training ends that cannot go on."""


class TrainingStopped(RuntimeError):
    """A training that cannot go on, with the reason and the fix."""
