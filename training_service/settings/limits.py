"""Settings of limits on calls, streams, reports and tokens."""

from typing import Final

from pydantic import Field

from job_tracker.common.config import Config
from job_tracker.common.rates import Rate
from job_tracker.domain.access import TokenLimits
from job_tracker.domain.call_kinds import CallKind

_FAST: Final = 1_000_000
_CHANGES: Final = (
    "calls that change a job, a token, a project, a queue, the catalog or a report key, or that upload files"
)
_LISTS: Final = (
    "calls that list objects (such as jobs, artifacts, tokens and algorithms) or ask about the queue (such "
    "as `ExplainTraining`)"
)


def _rate(default: float, calls: str) -> float:
    description = f"For each caller, how many {calls} may come in a second, on average. 0: no limit."
    value: float = Field(default=default, ge=0, le=_FAST, description=description)
    return value


def _burst(default: int, calls: str) -> int:
    description = f"For each caller, how many {calls} may come at once after a pause."
    value: int = Field(default=default, ge=1, le=100 * _FAST, description=description)
    return value


class LimitSettings(Config):
    """Limits for each caller and kind of call. Calls beyond a limit are refused with RESOURCE_EXHAUSTED.

    Calls are counted by the caller's name. Calls without a token or a certificate are counted by the caller's
    address or, for IPv6, by its /64 network. Each replica counts by itself. See docs/operations.md.
    """

    submit_rate: float = _rate(500, "calls of `Train`")
    submit_burst: int = _burst(50_000, "calls of `Train`")
    change_rate: float = _rate(200, _CHANGES)
    change_burst: int = _burst(20_000, _CHANGES)
    read_rate: float = _rate(2000, "calls of `GetTrainingStatus`, `WhoAmI` and `FindTree`")
    read_burst: int = _burst(200_000, "calls of `GetTrainingStatus`, `WhoAmI` and `FindTree`")
    list_rate: float = _rate(100, _LISTS)
    list_burst: int = _burst(10_000, _LISTS)
    stream_rate: float = _rate(200, "calls that open a stream (watches, logs, metrics, files)")
    stream_burst: int = _burst(20_000, "calls that open a stream (watches, logs, metrics, files)")
    report_rate: float = Field(
        default=20,
        ge=0,
        le=_FAST,
        description="Reports per second of each process of an attempt, on average. 0: no limit. "
        "`trainer_kit` sends at most one per second.",
    )
    report_burst: int = Field(
        default=2000,
        ge=1,
        le=100 * _FAST,
        description="Reports of each process of an attempt that may come at once, after a pause.",
    )
    failed_token_rate: float = Field(
        default=10,
        ge=0,
        le=_FAST,
        description="Calls per second with invalid tokens from one address (for IPv6, from one /64 network), "
        "on average. 0: no limit. Beyond the limit, the service still accepts from this address the tokens "
        "that it has accepted before, and refuses all other tokens without a check.",
    )
    failed_token_burst: int = Field(
        default=200,
        ge=1,
        le=100 * _FAST,
        description="Calls with invalid tokens from one address (for IPv6, from one /64 network) that may "
        "come at once, after a pause.",
    )
    open_streams: int = Field(
        default=20_000, ge=1, description="Streams of all callers that may be open at the same time."
    )
    open_streams_of_caller: int = Field(
        default=10_000, ge=1, description="Streams of one caller that may be open at the same time."
    )
    tokens: int = Field(
        default=100_000,
        ge=1,
        description="Number of tokens that the store keeps, including revoked and expired ones. At the "
        "limit, each new token replaces the token that ended first. If no token has ended, no new token can "
        "be created.",
    )
    tokens_of_project: int = Field(
        default=20_000,
        ge=1,
        description="Number of tokens that the store keeps for one project. At the "
        "limit, the rule of `tokens` applies.",
    )

    def rate_of(self, kind: CallKind) -> Rate | None:
        """Return a limit on the rate of calls of this kind; None if there is no limit."""
        return _counter(getattr(self, f"{kind}_rate"), getattr(self, f"{kind}_burst"))

    @property
    def of_tokens(self) -> TokenLimits:
        """The largest number of tokens that the store keeps: in all, and for one project."""
        return TokenLimits(in_all=self.tokens, of_project=self.tokens_of_project)

    @property
    def failed_tokens(self) -> Rate | None:
        """The limit on the rate of calls with invalid tokens; None if there is no limit."""
        return _counter(self.failed_token_rate, self.failed_token_burst)


def _counter(per_second: float, burst: int) -> Rate | None:
    return Rate(per_second, burst) if per_second else None
