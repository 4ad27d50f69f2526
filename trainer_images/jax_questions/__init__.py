"""JAX on the questions: one program on the devices of all processes."""
