"""Types of settings with the syntax of Kubernetes: names, labels, quantities."""

import re
from decimal import Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from job_tracker.common.printable import quoted
from job_tracker.frameworks.reserved_names import is_set_by_service

_DNS_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"(?=.{{1,253}}$){_DNS_LABEL}(?:\.{_DNS_LABEL})*")
_KEY_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_SECRET_KEY = re.compile(r"[A-Za-z0-9._-]{1,253}")
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_IMAGE = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]+)?/)?"  # the registry
    r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
_QUANTITY = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")
_SUFFIXES = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)},
}
_LARGEST = Decimal(2) ** 63 - 1
# Prefixes that belong to this service and to Kubernetes.
_SERVICE_DOMAIN = "training-service"
_RESERVED_DOMAINS = (_SERVICE_DOMAIN, "kubernetes.io", "k8s.io")
_SET_BY_SERVICE = ("app.kubernetes.io/managed-by", "app.kubernetes.io/instance", "app.kubernetes.io/name")
_MAX_ANNOTATION = 4096

CPU = "cpu"
BYTES = ("memory", "ephemeral-storage")


def amount(quantity: str) -> Decimal:
    """Return the number of a quantity, such as 0.5 for "500m". Raises ValueError if it is not allowed."""
    match = _QUANTITY.fullmatch(quantity)
    if match is None:
        raise ValueError(
            f'{quoted(quantity)} is not a quantity; allowed: numbers such as "2", "0.5" or "500m", and '
            'bytes such as "512Mi" or "4Gi"'
        )
    number = Decimal(match[1]) * _SUFFIXES[match[2] or ""]
    if number > _LARGEST:
        raise ValueError(f"{quoted(quantity)} is too large; at most 2^63 - 1 is allowed")
    return number


def check_resource(name: str, quantity: str) -> None:
    """Raise ValueError if the quantity of the resource is not allowed."""
    number = amount(quantity)
    if number <= 0:
        raise ValueError(f"{quoted(quantity)} of {name} is not allowed: it must be more than 0")
    if name == CPU and number % _SUFFIXES["m"]:
        raise ValueError(f"{quoted(quantity)} of cpu is not allowed: it must be a multiple of 1m")
    if name != CPU and number % 1:
        raise ValueError(f"{quoted(quantity)} of {name} is not allowed: it must be a whole number")


def is_reserved_key(key: str) -> bool:
    """Return whether the key of a label or annotation has a prefix of this service or of Kubernetes."""
    return _is_below(key_prefix(key), *_RESERVED_DOMAINS)


def is_key_of_service(key: str) -> bool:
    """Return whether the service sets the label or annotation with this key."""
    return _is_below(key_prefix(key), _SERVICE_DOMAIN) or key in _SET_BY_SERVICE


def _is_below(domain: str, *domains: str) -> bool:
    return any(domain == each or domain.endswith(f".{each}") for each in domains)


def key_prefix(key: str) -> str:
    """Return the prefix (domain) of the key of a label or annotation; empty if it has none."""
    prefix, slash, _ = key.partition("/")
    return prefix if slash else ""


def _number_as_text(value: Any) -> Any:
    # In TOML files, quantities may be numbers, such as cpu = 2. In Python, a bool is an int, too.
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _quantity(text: str) -> str:
    amount(text)
    return text


def _bytes_quantity(text: str) -> str:
    check_resource("bytes", text)
    return text


def resource_name(name: str) -> str:
    """Return the name if containers can have a resource of this name. Raises ValueError for other names."""
    known = name == CPU or name in BYTES or re.fullmatch(r"hugepages-[0-9]+[KMG]i", name)
    if known or ("/" in name and _is_key(name) and not is_reserved_key(name)):
        return name
    raise ValueError(
        f"{quoted(name)} is not a resource; allowed: cpu, memory, ephemeral-storage, hugepages-SIZE and "
        "extended resources such as nvidia.com/gpu"
    )


def _resources(resources: dict[str, str]) -> dict[str, str]:
    for name, quantity in resources.items():
        check_resource(name, quantity)
    return resources


def _is_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    return bool(_KEY_NAME.fullmatch(name)) and (not slash or bool(_SUBDOMAIN.fullmatch(prefix)))


def _key(key: str) -> str:
    if not _is_key(key):
        raise ValueError(
            f"{quoted(key)} is not a key; allowed: at most 63 letters, digits and - _ . with a letter or "
            "digit at both ends, and optionally a domain and / before them, such as example.com/team"
        )
    return key


def _own_key(key: str) -> str:
    if is_reserved_key(_key(key)):
        raise ValueError(
            f"{quoted(key)} is a reserved key; the prefixes {', '.join(_RESERVED_DOMAINS)} and their "
            "subdomains are set by the service and by Kubernetes"
        )
    return key


def _label_key(key: str) -> str:
    if is_key_of_service(_key(key)):
        raise ValueError(f"{quoted(key)} is a reserved key, which the service sets")
    return key


def _key_prefix(prefix: str) -> str:
    if not _SUBDOMAIN.fullmatch(prefix):
        raise ValueError(f"{quoted(prefix)} is not a prefix; allowed: domains such as example.com")
    return prefix


def _label_value(value: str) -> str:
    if value and not _KEY_NAME.fullmatch(value):
        raise ValueError(
            f"{quoted(value)} is not the value of a label; allowed: at most 63 letters, digits and - _ . "
            "with a letter or digit at both ends"
        )
    return value


def _annotation_value(value: str) -> str:
    if len(value) > _MAX_ANNOTATION:
        raise ValueError(
            f"an annotation of {len(value)} characters is not allowed; at most {_MAX_ANNOTATION} are allowed"
        )
    return value


def _object_name(name: str) -> str:
    if not _SUBDOMAIN.fullmatch(name):
        raise ValueError(
            f"{quoted(name)} is not the name of an object; allowed: lower-case letters, digits, - and ., "
            "with a letter or digit at both ends"
        )
    return name


def _namespace(name: str) -> str:
    if not re.fullmatch(_DNS_LABEL, name):
        raise ValueError(
            f"{quoted(name)} is not a namespace; allowed: at most 63 lower-case letters, digits and -, "
            "with a letter or digit at both ends"
        )
    return name


def _secret_key(key: str) -> str:
    if not _SECRET_KEY.fullmatch(key):
        raise ValueError(f"{quoted(key)} is not a key of a Secret; allowed: letters, digits and . _ -")
    return key


def _environment_name(name: str) -> str:
    if not _ENVIRONMENT_NAME.fullmatch(name):
        raise ValueError(
            f"{quoted(name)} is not a name of an environment variable; allowed: at most 128 letters, "
            "digits and _, not beginning with a digit"
        )
    if is_set_by_service(name):
        raise ValueError(f"{quoted(name)} is a reserved name: it is set by the service")
    return name


def _image(image: str) -> str:
    if len(image) > 512 or not _IMAGE.fullmatch(image):
        raise ValueError(
            f"{quoted(image)} is not an image; allowed: [REGISTRY/]PATH[:TAG][@sha256:DIGEST], the path "
            "in lower case"
        )
    return image


def _absolute_path(path: str) -> str:
    parts = path.split("/")
    if not path.startswith("/") or path == "/" or ":" in path or any(p in ("", ".", "..") for p in parts[1:]):
        raise ValueError(
            f"{quoted(path)} is not allowed; allowed: absolute paths such as /a/b, without a colon, and "
            "without empty parts, . and .."
        )
    return path


def _relative_path(path: str) -> str:
    if not path or any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError(f"{quoted(path)} is not a path in a volume; allowed: relative paths without ..")
    return path


ResourceName = Annotated[str, AfterValidator(resource_name)]
Quantity = Annotated[str, BeforeValidator(_number_as_text), AfterValidator(_quantity)]
Resources = Annotated[dict[ResourceName, Quantity], AfterValidator(_resources)]
Bytes = Annotated[str, BeforeValidator(_number_as_text), AfterValidator(_bytes_quantity)]
Key = Annotated[str, AfterValidator(_key)]
KeyPrefix = Annotated[str, AfterValidator(_key_prefix)]
OwnKey = Annotated[str, AfterValidator(_own_key)]
LabelKey = Annotated[str, AfterValidator(_label_key)]
LabelValue = Annotated[str, AfterValidator(_label_value)]
AnnotationValue = Annotated[str, AfterValidator(_annotation_value)]
ObjectName = Annotated[str, AfterValidator(_object_name)]
Namespace = Annotated[str, AfterValidator(_namespace)]
SecretKey = Annotated[str, AfterValidator(_secret_key)]
EnvironmentName = Annotated[str, AfterValidator(_environment_name)]
Image = Annotated[str, AfterValidator(_image)]
AbsolutePath = Annotated[str, AfterValidator(_absolute_path)]
RelativePath = Annotated[str, AfterValidator(_relative_path)]
