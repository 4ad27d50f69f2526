"""Training code that may be run, and how each backend runs it."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Protocol

from pydantic import AfterValidator, BaseModel, Field, create_model, model_validator

from job_tracker.catalog.groups import GROUP_PARAMETERS, Composer, ElasticRecipe, RoleRecipe
from job_tracker.catalog.parameters import PARAMETER_NAME, Parameter
from job_tracker.common.config import Config
from job_tracker.common.printable import quoted
from job_tracker.domain.errors import InvalidField
from job_tracker.frameworks import FRAMEWORKS
from job_tracker.frameworks.job_environment import FREE_PARAMETERS
from job_tracker.frameworks.reserved_names import is_reserved

_MAX_FREE_BYTES = 96 * 1024  # Linux takes at most 128 KiB a variable


class Recipe(Protocol):
    """What the recipes of all backends have in common."""

    @property
    def command(self) -> tuple[str, ...]:
        """The program and its arguments; empty: what the image starts."""
        ...

    @property
    def nproc_per_node(self) -> int:
        """Training processes in each instance."""
        ...


def _parameter_name(name: str) -> str:
    if not PARAMETER_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a name for an environment variable")
    if is_reserved(name) or name in GROUP_PARAMETERS:
        raise ValueError(
            f"{name!r} is a reserved name: the service sets it, or it can change which code runs, so no "
            "request may set it; a value of your own goes into the algorithm's environment"
        )
    return name


def _framework_name(name: str) -> str:
    if name not in FRAMEWORKS:
        raise ValueError(f"{name!r} is not known; allowed are {', '.join(sorted(FRAMEWORKS))}")
    return name


class Algorithm(Config):
    """Training code that may be run: its framework, its parameters, and how each backend runs it."""

    description: str = ""
    version: str = Field(
        default="", max_length=256, description="of the training code, as a commit: recorded with each job"
    )
    framework: Annotated[str, AfterValidator(_framework_name)] = "pytorch"
    parameters: dict[Annotated[str, AfterValidator(_parameter_name)], Parameter] = Field(default={})
    free_parameters: bool = Field(
        default=False,
        description="whether a request may send parameters that are not declared: they are passed as one "
        f"JSON object of texts in {FREE_PARAMETERS}, never as variables of their own",
    )
    max_instances: int | None = Field(
        default=None, ge=1, description="the most PARALLEL_INSTANCES that a job may have"
    )
    roles: dict[str, RoleRecipe] = Field(
        default={}, description="instances besides the master and its workers, as ps = {instances = 1}"
    )
    elastic: ElasticRecipe | None = Field(
        default=None, description="that the group goes on when it loses workers; none: it ends with any"
    )
    check: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(),
        description="a program and its arguments that the service runs itself, at the door, with the "
        "parameters and WORLD_SIZE as environment; exit code 65 refuses them, for the reason on stderr",
    )
    environment: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], str] = Field(
        default={}, description="variables set for every process; nothing secret"
    )

    @model_validator(mode="before")
    @classmethod
    def _no_variables_of_any_name(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and "other_parameters" in values:
            raise ValueError(
                "other_parameters is no longer a setting, since a variable of any name can run any program: "
                "declare the parameters that the program reads, or set free_parameters = true and read the "
                f"others from the JSON object in {FREE_PARAMETERS}"
            )
        return values

    @model_validator(mode="after")
    def _the_framework_can_do_that(self) -> "Algorithm":
        problem = self.composer.problem()
        if problem is not None:
            raise ValueError(problem)
        for engine, recipe in self.recipes.items():
            if recipe.nproc_per_node > 1 and not self.composer.traits.starts_processes:
                raise ValueError(
                    f"{engine}.nproc_per_node: framework {self.framework} has one process in each instance"
                )
        return self

    @property
    def recipes(self) -> Mapping[str, Recipe]:
        """How it runs, by backend."""
        names = type(self).model_fields.keys() - Algorithm.model_fields.keys()
        return {name: recipe for name in sorted(names) if (recipe := getattr(self, name)) is not None}

    @property
    def composer(self) -> Composer:
        """What makes its groups out of parameters."""
        return Composer(
            framework=self.framework,
            roles=self.roles,
            elastic=self.elastic,
            max_instances=self.max_instances,
        )

    def command_of(self, role: str, command: tuple[str, ...]) -> tuple[str, ...]:
        """What instances of a role run, where an engine's recipe has that command; nothing: the image's."""
        own = self.roles.get(role)
        return (own.command if own else ()) or command

    def resolve(self, sent: Mapping[str, str]) -> dict[str, str]:
        """The variables that the processes get: what was sent, checked, and the defaults of the others.

        Raises InvalidField with the name of the first parameter that is not allowed.
        """
        free = {}
        for name, value in sent.items():
            field = f"parameters.{quoted(name)[1:-1]}"
            if not PARAMETER_NAME.fullmatch(name):
                raise InvalidField(
                    field, "a parameter's name has letters, digits and _, no digit first, 128 at most"
                )
            if name in GROUP_PARAMETERS:
                self.composer.check_name(name)
            elif name in self.parameters:
                self.parameters[name].check(field, value)
            elif self.free_parameters:
                Parameter().check(field, value)
                free[name] = value
            else:
                allowed = ", ".join([*self.parameters, *self.composer.parameters])
                raise InvalidField(field, f"is not a parameter of this algorithm; allowed are {allowed}")
        defaults = {n: p.default for n, p in self.parameters.items() if p.default is not None}
        variables = {name: value for name, value in sent.items() if name not in free}
        together = {FREE_PARAMETERS: _as_json(free)} if self.free_parameters else {}
        return {**defaults, **variables, **together}


def _as_json(free: Mapping[str, str]) -> str:
    # Characters stay as they are: escaped, the largest request that is allowed would not fit into a variable.
    text = json.dumps(free, ensure_ascii=False, sort_keys=True)
    if len(text.encode()) > _MAX_FREE_BYTES:
        raise InvalidField(
            "parameters",
            f"those that the algorithm does not declare have {len(text.encode())} bytes as JSON; at most "
            f"{_MAX_FREE_BYTES} are allowed",
        )
    return text


def algorithm_model(
    recipes: Mapping[str, type[BaseModel]], role_options: Mapping[str, type[BaseModel]]
) -> type[Algorithm]:
    """The model of algorithms where there are these backends: a field for the recipe of each.

    `role_options` are what the backends let roles have of their own.
    """
    role_fields: dict[str, Any] = {
        name: (
            model,
            Field(default=model(), description="options of their instances, laid over the algorithm's"),
        )
        for name, model in role_options.items()
    }
    role = create_model("RoleRecipe", __base__=RoleRecipe, __doc__=RoleRecipe.__doc__, **role_fields)
    fields: dict[str, Any] = {name: (model | None, None) for name, model in recipes.items()}
    fields["roles"] = (dict[str, role], Algorithm.model_fields["roles"])  # type: ignore[valid-type]
    return create_model("Algorithm", __base__=Algorithm, __doc__=Algorithm.__doc__, **fields)
