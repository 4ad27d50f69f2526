"""Scheduling: the planner, a pure function; the state that it needs; and the views of the queue."""
