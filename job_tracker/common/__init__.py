"""Small means that know nothing of jobs."""
