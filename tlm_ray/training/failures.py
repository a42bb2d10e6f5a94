"""Which failures of several workers are worth another attempt. Ray Train's controller imports it, without torch."""

from ray.train.v2._internal.execution.failure_handling import DefaultFailurePolicy, FailureDecision
from ray.train.v2.api.exceptions import TrainingFailedError

from tlm_ray.training.errors import TrainingStopped, WorkerFailed


class OnlyLostWorkers(DefaultFailurePolicy):
    """Ray Train's policy, which begins anew after any failure, but for what every attempt would meet again."""

    def make_decision(self, training_failed_error: TrainingFailedError) -> FailureDecision:
        """Raise at once if a worker stopped the training and none was lost; else count failures as ever.

        Workers that live raise TrainingStopped or WorkerFailed; Ray Train has other errors for those that were lost.
        """
        found = failures_of(training_failed_error)
        stopped = any(isinstance(error, TrainingStopped) for error in found)
        if stopped and all(isinstance(error, TrainingStopped | WorkerFailed) for error in found):
            return FailureDecision.RAISE
        return super().make_decision(training_failed_error)


def failures_of(error: TrainingFailedError) -> list[BaseException]:
    """Return what the workers met, or the controller; one error at least."""
    found = getattr(error, "worker_failures", {}).values()
    return list(found) or [getattr(error, "controller_failure", error)]
