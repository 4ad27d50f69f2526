"""The rules for STRATEGY=averaging, gossip and parameter_server. See `layout`."""

from typing import TYPE_CHECKING

from trainer_kit.errors import ParameterError

from language_model.choices import Stepping, Strategy
from language_model.parameter_server.synchrony import COMPENSATION, SPECULATE_AFTER, Synchrony

if TYPE_CHECKING:
    from language_model.layout import Layout


def averaging_fits(layout: "Layout") -> None:
    """Check the parameters of averaging and gossip, and OPTIMIZER. Raises ParameterError, with the rule."""
    averages = layout.strategy in (Strategy.AVERAGING, Strategy.GOSSIP)
    if averages and layout.pipeline * layout.tensor > 1:
        raise ParameterError(
            f"STRATEGY={layout.strategy} needs whole models, PIPELINE 1 and TENSOR 1, but they are "
            f"{layout.pipeline} and {layout.tensor}"
        )
    if layout.local_steps > 1 and not averages:
        raise ParameterError(
            f"LOCAL_STEPS={layout.local_steps} needs STRATEGY=averaging or gossip, but STRATEGY is "
            f"{layout.strategy}"
        )
    if layout.slow_momentum and layout.strategy is not Strategy.AVERAGING:
        raise ParameterError(
            f"SLOW_MOMENTUM={layout.slow_momentum:g} needs STRATEGY=averaging, but STRATEGY is "
            f"{layout.strategy}"
        )
    if layout.steps % layout.local_steps:
        raise ParameterError(
            f"STEPS {layout.steps} is not a multiple of LOCAL_STEPS {layout.local_steps}: the last average "
            "would be missing"
        )
    if layout.optimizer is not Stepping.ADAMW and not (
        averages or layout.is_served or layout.strategy is Strategy.DDP
    ):
        raise ParameterError(
            f"OPTIMIZER={layout.optimizer} needs STRATEGY=ddp, averaging, gossip or parameter_server, but "
            f"STRATEGY is {layout.strategy}, which divides the state of AdamW"
        )


def parameter_server_fits(layout: "Layout") -> None:
    """Check the parameters of parameter servers. Raises ParameterError, with the numbers and the rule."""
    if layout.is_served and layout.pipeline * layout.tensor > 1:
        raise ParameterError(
            "STRATEGY=parameter_server needs whole models, PIPELINE 1 and TENSOR 1, but they are "
            f"{layout.pipeline} and {layout.tensor}"
        )
    for name, value, default in (
        ("SYNCHRONY", layout.synchrony, Synchrony.SYNCHRONOUS),
        ("SERVERS", layout.servers, 1),
        ("STANDBY", layout.standby, False),
    ):
        if value != default and not layout.is_served:
            raise ParameterError(
                f"{name}={str(value).lower()} needs STRATEGY=parameter_server, but STRATEGY is "
                f"{layout.strategy}"
            )
    for name, number, unused, synchrony in (
        ("BACKUP_WORKERS", layout.backup_workers, 0, Synchrony.BACKUP_WORKERS),
        ("SPECULATE_AFTER", layout.speculate_after, SPECULATE_AFTER, Synchrony.SPECULATIVE),
        ("SOFTSYNC", layout.softsync, 1, Synchrony.SOFTSYNC),
        ("COMPENSATION", layout.compensation, COMPENSATION, Synchrony.DELAY_COMPENSATED),
    ):
        if number != unused and layout.synchrony is not synchrony:
            raise ParameterError(
                f"{name}={number:g} needs SYNCHRONY={synchrony}, but SYNCHRONY is {layout.synchrony}"
            )
