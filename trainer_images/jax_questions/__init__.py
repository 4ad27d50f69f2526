"""JAX on the questions: one program over the devices of all processes."""
