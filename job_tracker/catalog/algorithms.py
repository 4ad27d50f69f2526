"""Algorithms: training code, its parameters, and how each backend runs it."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any, Protocol

from pydantic import AfterValidator, BaseModel, Field, create_model, model_validator

from job_tracker.catalog import templates
from job_tracker.catalog.groups import GROUP_PARAMETERS, Composer, ElasticRecipe, RoleRecipe
from job_tracker.catalog.parameters import PARAMETER_NAME, Parameter
from job_tracker.common.config import Config, Duration
from job_tracker.common.printable import quoted
from job_tracker.domain.errors import InvalidField
from job_tracker.domain.group import GroupSpec, InstanceSpec
from job_tracker.domain.policies import MAX_DURATION, OnNonfinite
from job_tracker.frameworks import FRAMEWORKS
from job_tracker.frameworks.job_environment import FREE_PARAMETERS
from job_tracker.frameworks.reserved_names import is_reserved, is_set_by_service

_MAX_FREE_BYTES = 96 * 1024  # Linux accepts at most 128 KiB per variable


class Recipe(Protocol):
    """The common part of the recipes of all backends."""

    @property
    def command(self) -> tuple[str, ...]:
        """The program and its arguments; empty: the command of the image."""
        ...

    @property
    def nproc_per_node(self) -> int:
        """The number of training processes in each instance."""
        ...


def _parameter_name(name: str) -> str:
    if not PARAMETER_NAME.fullmatch(name):
        raise ValueError(
            f"{quoted(name)} is not a name of an environment variable; allowed: at most 128 letters, "
            "digits and _, not beginning with a digit"
        )
    if is_reserved(name) or name in GROUP_PARAMETERS:
        raise ValueError(
            f"{quoted(name)} is a reserved name: the service sets it, or it can change which code runs. "
            + (
                "Choose another name"
                if is_set_by_service(name) or name in GROUP_PARAMETERS
                else "No request may set it; put a fixed value into the algorithm's environment"
            )
        )
    return name


def _framework_name(name: str) -> str:
    if name not in FRAMEWORKS:
        raise ValueError(f"{quoted(name)} is not a framework; allowed: {', '.join(sorted(FRAMEWORKS))}")
    return name


class Algorithm(Config):
    """Training code: its framework, its parameters, and a recipe for each backend that can run it."""

    description: str = Field(default="", description="Text for users, shown in the list of algorithms.")
    version: str = Field(
        default="",
        max_length=256,
        description="Version of the training code, such as a commit. It is recorded with each job.",
    )
    framework: Annotated[str, AfterValidator(_framework_name)] = Field(
        default="pytorch",
        description=f"Framework that sets up the group: {', '.join(sorted(FRAMEWORKS))}.",
    )
    parameters: dict[Annotated[str, AfterValidator(_parameter_name)], Parameter] = Field(
        default={},
        description="Parameters that a request may set, by name. Each becomes an environment variable of the "
        "processes.",
    )
    free_parameters: bool = Field(
        default=False,
        description="Accept parameters that are not declared. They do not become environment variables, "
        "because some variables change which program runs. Instead, "
        f"{FREE_PARAMETERS} has them together, as one JSON object of strings.",
    )
    max_instances: int | None = Field(
        default=None,
        ge=1,
        description="Largest PARALLEL_INSTANCES of a job. Unset: the capacity (`scheduling.capacity` or "
        "`scheduling.flavors`).",
    )
    roles: dict[str, RoleRecipe] = Field(
        default={},
        description="Roles of instances besides the master and the workers, by name, such as `ps = "
        "{instances = 1}`. The framework defines the possible roles.",
    )
    elastic: ElasticRecipe | None = Field(
        default=None,
        description="Lets the group continue when it loses workers. Unset: the loss of one instance ends the "
        "attempt, unless `max_lost` allows the loss.",
    )
    max_lost: int = Field(
        default=0,
        ge=0,
        le=10_000,
        description="Largest MAX_LOST_INSTANCES that a job may set: the number of instances other than the "
        "master that may fail while the attempt continues without them. 0: the loss of one instance ends the "
        "attempt, unless the group is elastic.",
    )
    dataset: bool = Field(
        default=True,
        description="Whether a request must name a dataset. If false, a request may leave out the dataset "
        "and its version.",
    )
    on_nonfinite: OnNonfinite | None = Field(
        default=None,
        description="Reaction to a reported metric that is NaN or infinite, if the request sets none: `flag` "
        "or `fail`. Unset: `numbers.on_nonfinite`.",
    )
    progress_deadline: Annotated[Duration, Field(ge=timedelta(0), le=MAX_DURATION)] | None = Field(
        default=None,
        description="Time in which a running attempt has to make progress, if the request sets none. 0: the "
        "service learns the time from the steps of the attempt. Unset: `deadlines.progress`.",
    )
    check: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(),
        description="Program and arguments that the service runs at submission, with the parameters and "
        "WORLD_SIZE as environment. Exit code 65 refuses the request. The last line of the program's "
        "standard error becomes the error message.",
    )
    environment: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], str] = Field(
        default={},
        description="Environment variables of every process. Do not put secrets here: the backends have "
        "settings for secrets.",
    )

    @model_validator(mode="before")
    @classmethod
    def _no_variables_of_any_name(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and "other_parameters" in values:
            raise ValueError(
                "other_parameters is no longer a setting: a variable with any name can run any program. "
                "Declare the parameters that the program reads, or set free_parameters = true and read the "
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
                    f"{engine}.nproc_per_node: {recipe.nproc_per_node} is not allowed: framework "
                    f"{self.framework} starts one process in each instance; only 1 is allowed"
                )
        return self

    @model_validator(mode="after")
    def _commands_have_places_for_parameters_only(self) -> "Algorithm":
        commands = {
            **{f"{engine}.command": recipe.command for engine, recipe in self.recipes.items()},
            **{f"roles.{role}.command": recipe.command for role, recipe in self.roles.items()},
        }
        for field, command in commands.items():
            problem = templates.problem(command, self.parameters)
            if problem is not None:
                raise ValueError(f"{field}: {problem}")
        return self

    @property
    def recipes(self) -> Mapping[str, Recipe]:
        """The recipes, by backend."""
        names = type(self).model_fields.keys() - Algorithm.model_fields.keys()
        return {name: recipe for name in sorted(names) if (recipe := getattr(self, name)) is not None}

    @property
    def composer(self) -> Composer:
        """The composer of this algorithm's groups."""
        return Composer(
            framework=self.framework,
            roles=self.roles,
            elastic=self.elastic,
            max_instances=self.max_instances,
            max_lost=self.max_lost,
        )

    def command_of(self, role: str, command: tuple[str, ...]) -> tuple[str, ...]:
        """Return the role's own command; if it has none, `command`, which is the recipe's command.

        An empty result means the command of the image.
        """
        own = self.roles.get(role)
        return (own.command if own else ()) or command

    def filled(self, group: GroupSpec, values: Mapping[str, str]) -> GroupSpec:
        """Return the group, with the placeholders in its commands replaced by `values`.

        `values` has the values of the parameters, and TRAINING_DATA_URI if the job has a dataset. Raises
        InvalidField for a value that a program would take for an option.
        """
        instances = (group.trainers, *group.others.values())
        if not any(templates.is_template(instance.command) for instance in instances):
            return group

        def of(instance: InstanceSpec) -> InstanceSpec:
            return replace(instance, command=templates.filled(instance.command, self.parameters, values))

        return replace(
            group,
            trainers=of(group.trainers),
            others={role: of(instance) for role, instance in group.others.items()},
        )

    def resolve(self, sent: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of the processes: the sent parameters, and the defaults of the others.

        If the algorithm accepts free parameters, all parameters that neither it nor the service defines
        become one variable, FREE_PARAMETERS. Raises InvalidField for the first parameter that is not allowed,
        or if this variable is too long.
        """
        free = {}
        for name, value in sent.items():
            if parameter := self.parameters.get(name):
                parameter.check(f"parameters.{name}", value)
                continue
            if name in GROUP_PARAMETERS:
                self.composer.check_name(name)
                continue
            field = f"parameters.{quoted(name)[1:-1]}"
            if not PARAMETER_NAME.fullmatch(name):
                raise InvalidField(
                    field,
                    "the name is not allowed; allowed: at most 128 letters, digits and _, not beginning "
                    "with a digit",
                )
            if not self.free_parameters:
                allowed = ", ".join([*self.parameters, *self.composer.parameters])
                raise InvalidField(field, f"the algorithm has no such parameter; allowed: {allowed}")
            Parameter().check(field, value)
            free[name] = value
        defaults = {n: p.default for n, p in self.parameters.items() if p.default is not None}
        variables = {name: value for name, value in sent.items() if name not in free}
        together = {FREE_PARAMETERS: _as_json(free)} if self.free_parameters else {}
        return {**defaults, **variables, **together}


def _as_json(free: Mapping[str, str]) -> str:
    # With \u escapes, the text of the largest allowed request would not fit into an environment variable.
    text = json.dumps(free, ensure_ascii=False, sort_keys=True)
    if len(text.encode()) > _MAX_FREE_BYTES:
        raise InvalidField(
            "parameters",
            f"the parameters that the algorithm does not declare have {len(text.encode())} bytes as JSON; at "
            f"most {_MAX_FREE_BYTES} are allowed",
        )
    return text


def algorithm_model(
    recipes: Mapping[str, type[BaseModel]], role_options: Mapping[str, type[BaseModel]]
) -> type[Algorithm]:
    """Return the pydantic model of algorithms, with a field for the recipe of each backend.

    `recipes` has the pydantic model of each backend's recipe. `role_options` has the pydantic model of each
    backend's options for a role.
    """
    role_fields: dict[str, Any] = {
        name: (
            model,
            Field(
                default=model(),
                description=f"Options for this role on backend {name}. They override those of the algorithm.",
            ),
        )
        for name, model in role_options.items()
    }
    role = create_model("RoleRecipe", __base__=RoleRecipe, __doc__=RoleRecipe.__doc__, **role_fields)
    fields: dict[str, Any] = {
        name: (
            model | None,
            Field(
                default=None,
                description=f"How backend {name} runs the algorithm. Unset: backend {name} cannot run it.",
            ),
        )
        for name, model in recipes.items()
    }
    fields["roles"] = (dict[str, role], Algorithm.model_fields["roles"])  # type: ignore[valid-type]
    return create_model("Algorithm", __base__=Algorithm, __doc__=Algorithm.__doc__, **fields)
