"""Laws of scaling: how the time of a step depends on the number of instances. Pure functions, no service.

`least_squares` solves the small systems, and `laws` fits a law to measured points. `prediction` predicts the
time from runs on one and two instances. `study` has the results of a study, and `worth` finds how many
instances are worth their price.
"""
