"""Weight stashing: a stage of an asynchronous pipeline keeps versions of its weights for backward passes.

D. Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", SOSP 2019, section 3.3.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

Place = tuple[nn.Module, str]
"""A module, and the name of one of its parameters."""


class Version:
    """The weights of a stage after some number of updates."""

    def __init__(self, number: int, weights: dict[Place, nn.Parameter]) -> None:
        self.number = number
        """The number of updates before this version."""
        self.weights = weights
        """The version's own Parameter objects, so that each version has its own gradients."""

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """In the block, let the model compute with this version.

        A backward pass needs this, too, because it may recompute layers.
        """
        before = {(module, name): module.get_parameter(name) for module, name in self.weights}
        _set(self.weights)
        try:
            yield
        finally:
            _set(before)


class WeightVersions:
    """The current weights of a model, and the earlier weights that batches in flight still need.

    A held version shares memory with the current weights until the next update. So batches that began between
    the same two updates share one copy of the weights.
    """

    def __init__(self, model: nn.Module) -> None:
        self._parameters = {
            (module, name): parameter
            for module in model.modules()
            for name, parameter in module.named_parameters(recurse=False)
        }
        self._held: list[Version] = []
        self.updates = 0
        """The number of updates of the current weights. A resumed training sets it."""

    def hold(self) -> Version:
        """Return the current weights as a version, and keep this version until `take_gradients`."""
        # Autograd refuses a backward pass if the count of changes of a saved tensor has risen. `data`, unlike
        # `detach`, gives the kept weights a count of their own, which later updates do not raise.
        weights = {place: nn.Parameter(parameter.data) for place, parameter in self._parameters.items()}
        self._held.append(Version(self.updates, weights))
        return self._held[-1]

    def take_gradients(self, version: Version) -> None:
        """Move the gradients of a held version to the current weights, and release the version."""
        for place, weight in version.weights.items():
            self._parameters[place].grad, weight.grad = weight.grad, None
        self._held.remove(version)

    def begin_update(self) -> None:
        """Count an update. Call this before an optimizer changes the current weights in place.

        If a held version has these weights, they are copied, so that the version does not change.
        """
        if any(version.number == self.updates for version in self._held):
            for parameter in self._parameters.values():
                parameter.data = parameter.data.clone()
        self.updates += 1

    @property
    def stashed(self) -> list[Tensor]:
        """The held weights of earlier versions, one copy for each number of updates."""
        earlier = {version.number: version for version in self._held if version.number != self.updates}
        return [weight.data for version in earlier.values() for weight in version.weights.values()]


def _set(weights: dict[Place, nn.Parameter]) -> None:
    for (module, name), weight in weights.items():
        module.register_parameter(name, weight)
