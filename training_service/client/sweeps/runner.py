"""Runs a sweep: submits trials, looks at their jobs, gives up those that lag behind.

Every event is on the disk before its effect is relied on, and a trial's job has a request key made of the
sweep's id and the trial's number. So after a kill at any moment the next run does the last step again, and
nothing is lost or there twice.
"""

import logging
from collections.abc import Callable

from google.protobuf import json_format

from training_service._generated.training_service_pb2 import (
    Deadlines,
    GetTrainingStatusResponse,
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
from training_service.client.sweeps.methods import Pruner, method_of, pruner_of, trials_in_all
from training_service.client.sweeps.objective import NoValue, curve_of, value_of
from training_service.client.sync import TrainingClient
from training_service.client.watching import Patience, has_ended

logger = logging.getLogger(__name__)


class Runner:
    """One program's part in the life of a sweep.

    `pause` is called between two looks at the jobs, with the seconds to wait or None for the usual ones;
    `heard` with each event. A service that goes away is borne with for `patience` seconds at a time.
    """

    def __init__(
        self,
        client: TrainingClient,
        journal: Journal,
        *,
        pause: Callable[[float | None], None],
        heard: Callable[[Event], None] = lambda _event: None,
        patience: float = 60.0,
        at_once: int | None = None,
        max_failures: int | None = None,
    ) -> None:
        settings = journal.record.settings
        self.history = History()
        self.statuses: dict[int, GetTrainingStatusResponse] = {}
        """What was last heard of each trial's job."""
        self._client, self._journal = client, journal
        self._pause, self._heard, self._patience = pause, heard, patience
        self._at_once = at_once or settings.at_once
        self._max_failures = max_failures or settings.max_failures
        self._method, self._total = method_of(settings), trials_in_all(settings)
        self._pruner = pruner_of(settings)
        self._was_told_of_no_room = False
        for event in journal.events:
            self.history.add(event)
            if self._pruner:
                self._pruner.hear(event)

    @property
    def has_too_many_failures(self) -> bool:
        """Whether no more trials are made for that reason."""
        return self.history.failures >= self._max_failures

    def run(self) -> None:
        """Until every trial has ended, or too many have failed and the others have ended.

        Raises TrainingServiceError for what concerns the whole sweep: an unknown algorithm or dataset, a
        service that is not there or stays away. The jobs go on then, and so does the sweep when run again.
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
        """Ends the sweep and every job of it that has not ended. It may be repeated."""
        found = [(trial, self._found(trial)) for trial in self.history.live]
        if not self.history.is_cancelled:
            self._record(Cancelled())
        for trial, status in found:
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
            self._look_at(trial)
        self._submit_what_fits()

    def _submit_what_fits(self) -> None:
        while trial := self._next():
            try:
                job = self._submit(trial)
            except ResourceExhausted as error:
                if not self._was_told_of_no_room:
                    logger.info("waiting for room: %s", error)
                self._was_told_of_no_room = True
                return
            except (NotFound, FailedPrecondition) as error:
                self._record(Refused(trial=trial.number, reason=str(error)))
                raise
            except InvalidRequest as error:
                self._record(Ended(trial=trial.number, outcome="failed", reason=f"refused: {error}"))
            else:
                self._was_told_of_no_room = False
                self._record(Submitted(trial=trial.number, job=job))

    def _next(self) -> Trial | None:
        """The trial to submit: one whose job may exist already comes first."""
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
            parameters={**settings.parameters, **trial.parameters},
            instances=settings.instances,
            request_key=record.request_key(trial.number),
            pod_options=json_format.ParseDict(settings.pod_options, PodOptions()),
            retry_policy=json_format.ParseDict(settings.retry_policy, RetryPolicy()),
            deadlines=json_format.ParseDict(settings.deadlines, Deadlines()),
        )

    def _look_at(self, trial: Trial) -> None:
        if trial.job is None:
            return
        try:
            status = self.statuses[trial.number] = self._checked(trial, self._client.status(trial.job))
        except NotFound as error:
            self._record(Ended(trial=trial.number, outcome="failed", reason=str(error)))
            return
        if has_ended(status):
            self._end(trial, status)
        elif trial.state == "pruning":
            self._client.cancel(trial.job)
        elif self._pruner:
            self._judge(trial, trial.job, self._pruner)

    def _judge(self, trial: Trial, job: int, pruner: Pruner) -> None:
        """Hears what is new of the metric, and has the job cancelled if that is not enough."""
        curve = curve_of(self._client, job, self._journal.record.settings.objective.metric)
        if curve is None:
            return
        seen = trial.points[-1][0] if trial.points else -1
        fresh: list[tuple[int, float]] = []
        lags = False
        for step, value in zip(curve.steps, curve.values, strict=True):
            if step > seen and not lags:
                fresh.append((step, value))
                seen, lags = step, pruner.lags_behind(trial.number, step, value)
        if fresh:
            self._record(Reported(trial=trial.number, points=tuple(fresh), prune=lags))
        if lags:
            self._client.cancel(job)

    def _end(self, trial: Trial, status: GetTrainingStatusResponse) -> None:
        ended = Ended(trial=trial.number, outcome="cancelled")
        if status.status == TrainingStatus.succeed:
            ended = self._valued(trial, status.job_id)
        elif trial.state == "pruning":
            step, value = trial.points[-1]
            reason = f"behind the others at step {step}"
            ended = Ended(trial=trial.number, outcome="pruned", value=value, reason=reason)
        elif status.status == TrainingStatus.failure:
            reason = status.diagnosis.summary or status.message
            ended = Ended(trial=trial.number, outcome="failed", reason=reason)
        self._record(ended)

    def _valued(self, trial: Trial, job: int) -> Ended:
        try:
            value = value_of(self._client, job, self._journal.record.settings.objective)
        except NoValue as error:
            reason = f"it succeeded, but {error}"
            return Ended(trial=trial.number, outcome="failed", reason=reason)
        return Ended(trial=trial.number, outcome="complete", value=value)

    def _found(self, trial: Trial) -> GetTrainingStatusResponse | None:
        """The job of a trial, also one that a killed program has submitted and not written down."""
        if trial.job is not None:
            try:
                return self._checked(trial, self._client.status(trial.job))
            except NotFound:
                return None
        name = self._journal.record.job_name(trial.number)
        named = self._client.list(name_prefix=name)
        return next((status for status in named if status.metadata.name == name), None)

    def _checked(self, trial: Trial, status: GetTrainingStatusResponse) -> GetTrainingStatusResponse:
        if status.metadata.name != self._journal.record.job_name(trial.number):
            raise FailedPrecondition(
                f"job {status.job_id} at {self._client.address} is not trial {trial.number} of this sweep, "
                "but another's: is this the service that it was begun with?"
            )
        return status

    def _record(self, event: Event) -> None:
        self._journal.append(event)
        self.history.add(event)
        if self._pruner and isinstance(event, Ended):
            self._pruner.hear(event)
        self._heard(event)
