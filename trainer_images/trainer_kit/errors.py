"""What can stop a training process and be said in one line, with no traceback.

TrainingError
├── ParameterError    a variable of the environment is missing or wrong
├── GroupError        the processes that train together did not find each other
├── DataError         the training data is missing or malformed
├── StorageError      an address names a kind of storage that is not known here
└── ArtifactError     a folder does not hold the model that it should
"""


class TrainingError(Exception):
    """The run cannot go on, for a reason that its message tells the user in full."""


class ParameterError(TrainingError):
    """A variable of the environment is missing, does not parse or is out of range."""


class GroupError(TrainingError):
    """The group did not come together within its time."""


class DataError(TrainingError):
    """The training data is missing, malformed, or too little for what is asked."""


class StorageError(TrainingError):
    """An address names no kind of storage, or one whose library is not installed."""


class ArtifactError(TrainingError):
    """A folder is not a published model, or not a whole one."""
