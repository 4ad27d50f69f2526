"""The questions, learned with NumPy and MPI."""
