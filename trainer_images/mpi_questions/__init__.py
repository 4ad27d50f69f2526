"""NumPy and MPI on the questions."""
