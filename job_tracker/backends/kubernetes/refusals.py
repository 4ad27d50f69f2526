"""Turns the API server's refusal of a create call into a diagnosis, with pure functions."""

from job_tracker.backends.kubernetes.api_errors import ApiError, Forbidden, Invalid, NotFound, QuotaExceeded
from job_tracker.domain.diagnosis import Category, Diagnosis


def diagnose_refusal(error: ApiError, name: str, namespace: str) -> Diagnosis | None:
    """Return why the object cannot be created; None if the launch may be repeated after this error."""
    match error:
        case QuotaExceeded():
            return Diagnosis(
                category=Category.QUOTA_EXCEEDED,
                summary=f"The namespace {namespace} has no quota left for {name}.",
                resolution="Wait until other pods there have ended, request fewer instances or resources, "
                "or ask for a higher quota; then submit the job again.",
                detail=error.message,
                retryable=True,
            )
        case Forbidden() if "is being terminated" in error.message:
            return _namespace_gone(error, namespace, "is being deleted")
        case Forbidden() if " cannot create resource " in error.message:
            return Diagnosis(
                category=Category.FORBIDDEN,
                # The message begins with the resource: pods is forbidden: User "x" cannot create …
                summary=f"The service may not create {error.message.split(' ', 1)[0]} in namespace "
                f"{namespace}.",
                resolution="Give the service's account the rights in deploy/ (the detail says which one is "
                "missing), then submit the job again.",
                detail=error.message,
            )
        case Forbidden():
            return Diagnosis(
                category=Category.FORBIDDEN,
                summary=f"The cluster does not admit {name} to namespace {namespace}.",
                resolution="A policy of the cluster or the namespace refuses it. Read the detail, then "
                "change the algorithm's pod options or the policy.",
                detail=error.message,
            )
        case Invalid():
            return Diagnosis(
                category=Category.INVALID_OBJECT,
                summary=f"The cluster refuses {name} as invalid.",
                resolution="Correct the pod options of the request or of the algorithm. The detail has the "
                "name of the field.",
                detail=error.message,
            )
        case NotFound():
            return _namespace_gone(error, namespace, "does not exist")
        case _:
            return None


def name_taken(name: str, namespace: str) -> Diagnosis:
    """Return the diagnosis for a group whose name is taken by a foreign object."""
    return Diagnosis(
        category=Category.NAME_TAKEN,
        summary=f"Namespace {namespace} already has an object named {name}, which does not belong to this "
        "job.",
        resolution="Delete that object if it is not needed, or give the service a separate namespace. Then "
        "submit the job again.",
    )


def _namespace_gone(error: ApiError, namespace: str, how: str) -> Diagnosis:
    return Diagnosis(
        category=Category.NAMESPACE_GONE,
        summary=f"The namespace {namespace} {how}.",
        resolution="Create it, or set kubernetes.namespace to another namespace. Then submit the job again.",
        detail=error.message,
    )
