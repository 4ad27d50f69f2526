"""Runs a sweep: submits trials, checks their jobs and prunes poor ones.

The runner writes an event to disk before it acts on the event: for example, a trial is on disk before its
job is submitted. The request key of a job is made from the sweep's id and the trial's number. So the runner
may be killed at any moment: the next run repeats the step that was interrupted, and nothing is lost or done
twice.
"""

import logging
from collections.abc import Callable
from datetime import timedelta

from google.protobuf import json_format

from training_service._generated.training_service_pb2 import (
    Deadlines,
    GetTrainingStatusResponse,
    NumberPolicy,
    PodOptions,
    RetryPolicy,
    TrainingStatus,
)
from training_service.client.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    InvalidRequest,
    NotFound,
    ResourceExhausted,
    Unavailable,
)
from training_service.client.sweeps.events import (
    Cancelled,
    Ended,
    Event,
    Proposed,
    Refused,
    Reported,
    Submitted,
)
from training_service.client.sweeps.folder import Journal
from training_service.client.sweeps.history import History, Trial
from training_service.client.sweeps.methods import Pruner, method_of, pruner_of, total_trials
from training_service.client.sweeps.objective import NoValue, UnknownMetric, beside_of, curve_of, value_of
from training_service.client.sync import TrainingClient
from training_service.client.watching import Patience, has_ended

logger = logging.getLogger(__name__)


class Runner:
    """Runs one sweep in this program.

    `pause` is called between two checks of the jobs, with the seconds to wait, or None for the default.
    `on_event` is called with each new event. If the service goes away after the first check of the jobs, the
    runner retries for `patience` seconds. `at_once` and `max_failures` replace the values in the sweep's
    settings; None keeps them.
    """

    def __init__(
        self,
        client: TrainingClient,
        journal: Journal,
        *,
        pause: Callable[[float | None], None],
        on_event: Callable[[Event], None] = lambda _event: None,
        patience: float = 60.0,
        at_once: int | None = None,
        max_failures: int | None = None,
    ) -> None:
        settings = journal.record.settings
        self.history = History()
        self.statuses: dict[int, GetTrainingStatusResponse] = {}
        """The last known status of each trial's job."""
        self._client, self._journal = client, journal
        self._pause, self._on_event, self._patience = pause, on_event, patience
        self._at_once = at_once or settings.at_once
        self._max_failures = max_failures or settings.max_failures
        self._method, self._total = method_of(settings), total_trials(settings)
        self._pruner = pruner_of(settings)
        self._waits_for_room = False
        self._unknown_metric = ""
        """The reason why a trial has no value, if its job never reported the metric and no trial is complete.
        """
        for event in journal.events:
            self.history.add(event)
            if self._pruner:
                self._pruner.add(event)

    @property
    def has_too_many_failures(self) -> bool:
        """Whether so many trials have failed that the sweep submits no further trials."""
        return self.history.failures >= self._max_failures

    def run(self) -> None:
        """Run until all trials have ended. Submit no further trials once too many have failed.

        Raises TrainingServiceError for a problem of the whole sweep: an unknown algorithm, dataset or metric,
        or an unreachable service. The jobs then continue, and the sweep can be run again.
        """
        patience = Patience(self._patience)
        self._step()
        while not self._is_over():
            self._pause(None)
            try:
                self._step()
                patience.heard()
            except (Unavailable, DeadlineExceeded) as error:
                self._pause(patience.pause_after(error))

    def cancel(self) -> None:
        """Cancel the sweep and all its live jobs. May be repeated."""
        live = [(trial, self._find(trial)) for trial in self.history.live]
        if not self.history.is_cancelled:
            self._record(Cancelled())
        for trial, status in live:
            if status is not None and has_ended(status):
                self._end(trial, status)
                continue
            if status is not None:
                self._client.cancel(status.job_id)
            self._record(Ended(trial=trial.number, outcome="cancelled"))

    def _is_over(self) -> bool:
        return not self.history.live and not self._wants_more()

    def _wants_more(self) -> bool:
        made_all = len(self.history.trials) >= self._total
        return not (made_all or self.has_too_many_failures or self.history.is_cancelled)

    def _step(self) -> None:
        for trial in self.history.live:
            self._check(trial)
        if self._unknown_metric and not self._is_over():
            raise FailedPrecondition(f"{self._unknown_metric}. Correct the metric, and start another sweep")
        self._submit_trials()

    def _submit_trials(self) -> None:
        while trial := self._next():
            try:
                job = self._submit(trial)
            except ResourceExhausted as error:
                if not self._waits_for_room:
                    logger.info("waiting for room: %s", error)
                self._waits_for_room = True
                return
            except (NotFound, FailedPrecondition) as error:
                self._record(Refused(trial=trial.number, reason=str(error)))
                raise
            except InvalidRequest as error:
                self._record(Ended(trial=trial.number, outcome="failed", reason=f"refused: {error}"))
            else:
                self._waits_for_room = False
                self._record(Submitted(trial=trial.number, job=job))

    def _next(self) -> Trial | None:
        """Return the trial to submit next; None if there is none now.

        A proposed trial without a known job comes first: an earlier submission may have created its job, even
        if no answer arrived.
        """
        live = self.history.live
        if waiting := [trial for trial in live if trial.job is None]:
            return waiting[0]
        if len(live) >= self._at_once or not self._wants_more():
            return None
        trials = self.history.trials
        self._record(Proposed(trial=len(trials), parameters=dict(self._method.propose(trials))))
        return trials[-1]

    def _submit(self, trial: Trial) -> int:
        record = self._journal.record
        settings = record.settings
        return self._client.submit(
            settings.algorithm,
            settings.dataset,
            settings.version,
            name=record.job_name(trial.number),
            parameters=settings.parameters_of(trial.parameters),
            instances=settings.instances,
            request_key=record.request_key(trial.number),
            pod_options=json_format.ParseDict(settings.pod_options_of(trial.parameters), PodOptions()),
            retry_policy=json_format.ParseDict(settings.retry_policy, RetryPolicy()),
            deadlines=json_format.ParseDict(settings.deadlines, Deadlines()),
            number_policy=json_format.ParseDict(settings.number_policy, NumberPolicy()),
            queue=settings.queue,
            priority=settings.priority,
            expected=timedelta(seconds=settings.expected) if settings.expected else None,
            flavor=settings.flavor,
        )

    def _check(self, trial: Trial) -> None:
        if trial.job is None:
            return
        try:
            status = self.statuses[trial.number] = self._verified(trial, self._client.status(trial.job))
        except NotFound as error:
            self._record(Ended(trial=trial.number, outcome="failed", reason=str(error)))
            return
        if has_ended(status):
            self._end(trial, status)
        elif trial.state == "pruning":
            self._client.cancel(trial.job)
        elif self._pruner:
            self._prune(trial, trial.job, self._pruner)
        elif self._journal.record.settings.objective.enough:
            self._stop_after_enough(trial, trial.job)

    def _stop_after_enough(self, trial: Trial, job: int) -> None:
        """Cancel a job that has reported the metric often enough.

        The event is written to disk before the job is cancelled, as when a job is pruned.
        """
        objective = self._journal.record.settings.objective
        curve = curve_of(self._client, job, objective.metric)
        if curve is not None and len(curve.steps) >= (objective.enough or 0):
            self._record(Reported(trial=trial.number, points=(), prune=True))
            self._client.cancel(job)

    def _prune(self, trial: Trial, job: int, pruner: Pruner) -> None:
        """Pass new values of the metric to the pruner, and cancel the job if the pruner decides so."""
        curve = curve_of(self._client, job, self._journal.record.settings.objective.metric)
        if curve is None:
            return
        seen = trial.points[-1][0] if trial.points else -1
        new: list[tuple[int, float]] = []
        prune = False
        for step, value in zip(curve.steps, curve.values, strict=True):
            if step > seen and not prune:
                new.append((step, value))
                seen, prune = step, pruner.should_prune(trial.number, step, value)
        if new:
            self._record(Reported(trial=trial.number, points=tuple(new), prune=prune))
        if prune:
            self._client.cancel(job)

    def _end(self, trial: Trial, status: GetTrainingStatusResponse) -> None:
        ended = Ended(trial=trial.number, outcome="cancelled")
        has_enough = trial.state == "pruning" and self._journal.record.settings.objective.enough
        if status.status == TrainingStatus.succeed or has_enough:
            ended = self._completed(trial, status)
        elif trial.state == "pruning":
            step, value = trial.points[-1]
            reason = f"worse than other trials at step {step}"
            ended = Ended(trial=trial.number, outcome="pruned", value=value, reason=reason)
        elif status.status == TrainingStatus.failure:
            reason = status.diagnosis.summary or status.message
            ended = Ended(trial=trial.number, outcome="failed", reason=reason)
        self._record(ended)

    def _completed(self, trial: Trial, status: GetTrainingStatusResponse) -> Ended:
        job = status.job_id
        try:
            objective = self._journal.record.settings.objective
            value = value_of(self._client, job, objective)
            beside = beside_of(self._client, job, objective)
        except NoValue as error:
            end = "succeeded" if status.status == TrainingStatus.succeed else "was stopped"
            reason = f"the job {end}, but {error}"
            if isinstance(error, UnknownMetric) and not any(
                t.state == "complete" for t in self.history.trials
            ):
                self._unknown_metric = f"trial {trial.number}, job {job}: {reason}"
            return Ended(trial=trial.number, outcome="failed", reason=reason)
        return Ended(trial=trial.number, outcome="complete", value=value, beside=beside)

    def _find(self, trial: Trial) -> GetTrainingStatusResponse | None:
        """Return the status of a trial's job; None if there is no job.

        If the program was killed right after it submitted the job, the trial has no id of a job. The job is
        then found by its name.
        """
        if trial.job is not None:
            try:
                return self._verified(trial, self._client.status(trial.job))
            except NotFound:
                return None
        name = self._journal.record.job_name(trial.number)
        named = self._client.list(name_prefix=name)
        return next((status for status in named if status.metadata.name == name), None)

    def _verified(self, trial: Trial, status: GetTrainingStatusResponse) -> GetTrainingStatusResponse:
        if status.metadata.name != self._journal.record.job_name(trial.number):
            raise FailedPrecondition(
                f"job {status.job_id} at {self._client.address} is not trial {trial.number} of this sweep: "
                "give the --address of the service that the sweep was started with"
            )
        return status

    def _record(self, event: Event) -> None:
        self._journal.append(event)
        self.history.add(event)
        if self._pruner and isinstance(event, Ended):
            self._pruner.add(event)
        self._on_event(event)
