"""Laws of scaling: how the time of a step depends on the number of instances. Pure functions, no service.

`laws` fits a law to measured points, by means of `least_squares`. `prediction` predicts the time of a step
from runs on one and two instances. `study` has the results of a study, and `worth` finds how many instances
are worth their price.
"""
