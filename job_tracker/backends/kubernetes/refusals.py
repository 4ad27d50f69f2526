"""From what the API server said to a create call to what that means, and what to do about it. Pure."""

from job_tracker.backends.kubernetes.api_errors import ApiError, Forbidden, Invalid, NotFound, QuotaExceeded
from job_tracker.domain.diagnosis import Category, Diagnosis


def diagnose_refusal(error: ApiError, name: str, namespace: str) -> Diagnosis | None:
    """Why the object could not be created; None if trying again later may help."""
    match error:
        case QuotaExceeded():
            return Diagnosis(
                category=Category.QUOTA_EXCEEDED,
                summary=f"The namespace {namespace} has no quota left for {name}.",
                resolution="Wait until other pods in it have ended, ask for fewer instances or resources, or "
                "have the quota raised; then submit the job again.",
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
                resolution="Give its account the rights that deploy/ lists (verb and resource are in the "
                "detail), then submit the job again.",
                detail=error.message,
            )
        case Forbidden():
            return Diagnosis(
                category=Category.FORBIDDEN,
                summary=f"The cluster does not admit {name} to namespace {namespace}.",
                resolution="A policy of the cluster or the namespace refuses it, see the detail: change the "
                "algorithm's pod options, or the policy.",
                detail=error.message,
            )
        case Invalid():
            return Diagnosis(
                category=Category.INVALID_OBJECT,
                summary=f"The cluster refuses {name}, as it is not valid.",
                resolution="Correct the pod options of the request or of the algorithm; the detail names the "
                "field.",
                detail=error.message,
            )
        case NotFound():
            return _namespace_gone(error, namespace, "does not exist")
        case _:
            return None


def name_taken(name: str, namespace: str) -> Diagnosis:
    """Why a group cannot be launched whose name a stranger's object has."""
    return Diagnosis(
        category=Category.NAME_TAKEN,
        summary=f"There is another {name} in namespace {namespace}, which is not of this job.",
        resolution="It was left as it is. Delete it if nobody needs it, or give the service a namespace of "
        "its own, and submit the job again.",
    )


def _namespace_gone(error: ApiError, namespace: str, how: str) -> Diagnosis:
    return Diagnosis(
        category=Category.NAMESPACE_GONE,
        summary=f"The namespace {namespace} {how}.",
        resolution="Create it, or set kubernetes.namespace to another one, and submit the job again.",
        detail=error.message,
    )
