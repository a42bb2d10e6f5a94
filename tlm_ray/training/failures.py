"""Decide which failures of several workers to retry; Ray Train's controller imports this, without torch."""

from ray.train.v2._internal.execution.failure_handling import DefaultFailurePolicy, FailureDecision
from ray.train.v2.api.exceptions import TrainingFailedError

from tlm_ray.training.errors import TrainingStopped, WorkerFailed


class OnlyLostWorkers(DefaultFailurePolicy):
    """Ray Train's policy, which retries after any failure, except for errors that every attempt would meet."""

    def make_decision(self, training_failed_error: TrainingFailedError) -> FailureDecision:
        """Return RAISE if a worker raised TrainingStopped and no worker was lost; else apply Ray Train's policy.

        Live workers raise TrainingStopped or WorkerFailed; Ray Train reports lost workers with other errors.
        """
        found = failures_of(training_failed_error)
        stopped = any(isinstance(error, TrainingStopped) for error in found)
        if stopped and all(isinstance(error, TrainingStopped | WorkerFailed) for error in found):
            return FailureDecision.RAISE
        return super().make_decision(training_failed_error)


def failures_of(error: TrainingFailedError) -> list[BaseException]:
    """Return the workers' errors, or the controller's if there are none."""
    found = getattr(error, "worker_failures", {}).values()
    return list(found) or [getattr(error, "controller_failure", error)]
