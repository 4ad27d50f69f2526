"""Laws of scaling: how the time of a step depends on the number of instances. Pure functions, no service.

`least_squares` solves the small systems, `laws` fits a law to measured points, `prediction` computes one from
runs on one and two instances, and `worth` finds how many instances are worth their price.
"""
