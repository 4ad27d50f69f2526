"""The vocabulary of all other packages: jobs, groups, diagnoses, policies, errors, names."""
