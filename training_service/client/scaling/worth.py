"""Finds how many instances are worth using, by the efficiency of the last added instance or by prices."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Rate = Callable[[int], float]
"""Returns the examples per second, or the speed-up, on a number of instances."""


@dataclass(frozen=True)
class Prices:
    """The prices by which a number of instances is judged, and the least efficiency; see `of_measured`."""

    least_efficiency: float
    instance_hour: float | None = None
    hour_of_waiting: float | None = None


def by_efficiency(rate: Rate, least: float, most: int) -> int:
    """Return the number of instances up to which each added instance is worth it; at most `most`.

    An added instance is worth it if it adds at least the share `least` of the speed of one instance alone.
    Raises ValueError unless `least` is above 0 and at most 1.
    """
    if not 0 < least <= 1:
        raise ValueError(f"the least efficiency is {least:g}; it must be above 0 and at most 1")
    one = rate(1)
    for count in range(1, most):
        if rate(count + 1) - rate(count) < least * one:
            return count
    return most


def by_price(rate: Rate, price: float, value_of_time: float, most: int) -> int:
    """Return the number of instances, at most `most`, with which an example costs least.

    An hour of n instances costs n · `price`, and an hour of waiting for the result costs `value_of_time`, in
    the same currency. So an example costs (n · price + value_of_time) / (3600 · rate(n)). If `value_of_time`
    is 0, the number with the highest efficiency is the cheapest. Raises ValueError if an amount is negative
    or infinite, or if both are 0.
    """
    for name, amount in (("price", price), ("value of time", value_of_time)):
        if not 0 <= amount < math.inf:
            raise ValueError(f"the {name} is {amount:g}; it must be 0 or more")
    if not price + value_of_time:
        raise ValueError("price and value of time are both 0: every number of instances costs the same")
    return min(range(1, most + 1), key=lambda count: (count * price + value_of_time) / rate(count))


def of_measured(rates: Mapping[int, float], one: float, prices: Prices) -> int:
    """Return how many instances are worth using. `rates` has the measured rate of each number to choose from.

    With both prices, return the number with which an example costs least. Otherwise, begin with the smallest
    number. Go on to the next larger number as long as each added instance adds, on average, at least
    `least_efficiency` times `one`, the rate of one instance. Raises ValueError if `rates` is empty.
    """
    if not rates:
        raise ValueError("no run has a throughput")
    price, waiting = prices.instance_hour, prices.hour_of_waiting
    if price is not None and waiting is not None:
        return min(sorted(rates), key=lambda count: (count * price + waiting) / rates[count])
    best, *others = sorted(rates)
    for count in others:
        if rates[count] - rates[best] < (count - best) * prices.least_efficiency * one:
            break
        best = count
    return best


def numbers_between(least: int, most: int) -> list[int]:
    """Return `least`, its doublings below `most`, and `most`.

    Raises ValueError unless `least` is above 0 and below `most`.
    """
    if not 1 <= least < most:
        raise ValueError(f"the bounds are {least} and {most}; the first must be above 0, the second larger")
    found = [least]
    while found[-1] * 2 < most:
        found.append(found[-1] * 2)
    return [*found, most]


def cost_of_example(rate: float, instances: int, price: float) -> float:
    """Return the price of an example.

    `rate` is in examples per second, and `price` is the price of one instance for an hour.
    """
    return instances * price / 3600 / rate
