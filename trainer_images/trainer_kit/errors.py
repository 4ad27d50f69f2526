"""Errors that end a training process with one line instead of a traceback.

TrainingError
├── ParameterError      an environment variable is missing or invalid
├── GroupError          the processes of the group did not connect, or lost one of them
├── DataError           the training data is missing or malformed
├── StorageError        storage is of an unknown kind, unavailable, full or read-only
├── ArtifactError       a folder does not contain a complete model
├── DamagedError        a checkpoint is damaged
├── UnfitError          a checkpoint does not match the model or optimizer
├── UntrustedTypeError  a checkpoint contains an object of a type that is not allowed
└── SupersededError     a later attempt of the same job has started
"""


class TrainingError(Exception):
    """The run cannot continue. The message gives the full reason to the user."""


class ParameterError(TrainingError):
    """An environment variable is missing, malformed or out of range."""


class GroupError(TrainingError):
    """The group was not complete within its time-out, or has lost one of its processes."""


class DataError(TrainingError):
    """The training data is missing, malformed, too small for the parameters, or too large for the disk."""


class StorageError(TrainingError):
    """Storage has failed or is of an unknown kind, or the library for it is not installed."""


class ArtifactError(TrainingError):
    """A folder is not a complete, published model."""


class DamagedError(TrainingError):
    """A checkpoint is incomplete, or differs from what was written."""


class UnfitError(TrainingError):
    """A complete checkpoint does not match the state of the training, such as its model or optimizer."""


class UntrustedTypeError(TrainingError):
    """A checkpoint, or a state to be saved, contains an object of a type that checkpoints cannot contain.

    For example, loading the object might run code.
    """


class SupersededError(TrainingError):
    """A later attempt of the same job, or a later start of this attempt, has begun, so this run must stop."""
