"""What can stop a training process and be said in one line, with no traceback.

TrainingError
├── ParameterError      a variable of the environment is missing or wrong
├── GroupError          the processes that train together did not find each other, or lost one
├── DataError           the training data is missing or malformed
├── StorageError        storage is of an unknown kind, away, full or not to be written
├── ArtifactError       a folder does not hold the model that it should
├── DamagedError        a checkpoint is not whole
├── UnfitError          a checkpoint is of a training with other parts than this one
├── UntrustedTypeError  a checkpoint holds an object of a type that is not loaded
└── SupersededError     a later attempt at the same job has begun
"""


class TrainingError(Exception):
    """The run cannot go on, for a reason that its message tells the user in full."""


class ParameterError(TrainingError):
    """A variable of the environment is missing, does not parse or is out of range."""


class GroupError(TrainingError):
    """The group did not come together within its time, or has lost one of its processes."""


class DataError(TrainingError):
    """The training data is missing, malformed, or too little for what is asked."""


class StorageError(TrainingError):
    """Storage of a kind that is not known or whose library is not installed, or that fails."""


class ArtifactError(TrainingError):
    """A folder is not a published model, or not a whole one."""


class DamagedError(TrainingError):
    """A checkpoint is not what was written."""


class UnfitError(TrainingError):
    """A checkpoint is whole, but its model or optimizer has not the parts that the training code has."""


class UntrustedTypeError(TrainingError):
    """A checkpoint holds an object of a type that may run code when it is loaded."""


class SupersededError(TrainingError):
    """A later attempt at the same job has begun, so this one must not go on."""
