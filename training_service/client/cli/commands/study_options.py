"""Options of `trainctl scale`: when more instances are worth their cost, and how often jobs are checked.

`trainctl submit --instances auto` has options with the same names, and checks them with `prices`, too.
"""

from typing import Annotated

import typer

from training_service.client.scaling.worth import Prices

LeastEfficiency = Annotated[
    float, typer.Option(help="Share of the speed of one instance that each added instance must add.")
]
Price = Annotated[float | None, typer.Option(help="Price of an instance for an hour.")]
ValueOfTime = Annotated[float | None, typer.Option(help="Price of an hour of waiting, in the same currency.")]
Every = Annotated[
    float, typer.Option(metavar="SECONDS", min=0.01, help="The time between two checks of the jobs.")
]


def prices(least: float, price: float | None, value_of_time: float | None) -> Prices:
    """Return the prices by which a number of instances is judged.

    Raises BadParameter if a value is not allowed.
    """
    if not 0 < least <= 1:
        raise typer.BadParameter(f"{least:g} must be above 0 and at most 1", param_hint="--least-efficiency")
    for option, amount in (("--price", price), ("--value-of-time", value_of_time)):
        if amount is not None and not 0 <= amount < float("inf"):
            raise typer.BadParameter(f"{amount:g} must be 0 or more", param_hint=option)
    if value_of_time is not None and not price:
        raise typer.BadParameter("needs --price above 0", param_hint="--value-of-time")
    return Prices(least, price, value_of_time)
