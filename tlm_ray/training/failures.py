"""Which failures of several workers are worth another attempt. Ray Train's controller imports it, without torch."""

from ray.train.v2._internal.exceptions import UserExceptionWithTraceback
from ray.train.v2._internal.execution.failure_handling import DefaultFailurePolicy, FailureDecision
from ray.train.v2.api.exceptions import TrainingFailedError

from tlm_ray.training.errors import TrainingStopped


class OnlyLostWorkers(DefaultFailurePolicy):
    """Ray Train's policy, which begins anew after any failure, but for what every attempt would meet again."""

    def make_decision(self, training_failed_error: TrainingFailedError) -> FailureDecision:
        """Raise at once if a worker has stopped the training and none was lost; else count failures as ever."""
        found = list(getattr(training_failed_error, "worker_failures", {}).values())
        is_lost = not all(isinstance(each, UserExceptionWithTraceback) for each in found)
        if not is_lost and any(isinstance(each, TrainingStopped) for each in failures_of(training_failed_error)):
            return FailureDecision.RAISE
        return super().make_decision(training_failed_error)


def failures_of(error: TrainingFailedError) -> list[BaseException]:
    """Return what the workers raised, or Ray Train's errors for those that were lost; at least one error."""
    found = getattr(error, "worker_failures", {}).values()
    return [getattr(each, "_base_exc", each) for each in found] or [getattr(error, "controller_failure", error)]
