"""The words that everything else speaks: jobs, groups, diagnoses, policies, errors, names."""
