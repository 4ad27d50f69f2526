"""Commands with placeholders for parameters, such as `--lr {LR}`: programs get the values as arguments.

`{NAME}` is the value of a parameter. `{TRAINING_DATA_URI}` is the URI of the dataset version. `{NAME?TEXT}`
has to be a whole argument. The argument becomes TEXT if the `bool` parameter NAME is true, and is left out
otherwise. `{{NAME}}` stands for the text `{NAME}`. All other braces stay as they are, even those of
`${NAME}`, which a shell reads. An argument with a parameter that has no value is left out. If this argument
is only a placeholder, the option before the argument is left out, too.
Code that an interpreter runs, such as the argument after `python -c`, must not have placeholders. Admission
fills in the values, so backends do not see placeholders. A value is always one argument, or a part of one.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from job_tracker.catalog.parameters import Parameter
from job_tracker.common.printable import quoted
from job_tracker.domain.errors import InvalidField

DATA_URI = "TRAINING_DATA_URI"
"""The name of the placeholder for the dataset version's URI. Every command may have this placeholder."""

_NAME = "[A-Za-z_][A-Za-z0-9_]*"
_PLACE = re.compile(rf"\{{\{{({_NAME})\}}\}}|(?<!\$)\{{({_NAME})\}}")
_FLAG = re.compile(rf"\{{({_NAME})\?([^{{}}]+)\}}")
_BEGIN_OF_FLAG = re.compile(rf"(?<![${{])\{{({_NAME})\?")


@dataclass(frozen=True, slots=True)
class _Interpreter:
    """Programs that run the text of an argument as code.

    A placeholder in such a text would let requests run any code.
    """

    names: str
    code: str
    """The letters of options that precede code, such as `c` of `-c`.

    Other letters may be combined with them, as in `-ec`.
    """
    with_value: str = "$^"
    """A regular expression for options whose value is the next argument, such as `-o pipefail`."""

    def runs_as_code(self, before: Sequence[str], argument: str) -> bool:
        """Return whether the program runs `argument`, which follows the arguments `before`, as code.

        Code is the first text after an option such as `-c`, or the end of an option such as `--eval=CODE`.
        """
        is_code = is_value = False
        for each in before:
            if is_value:
                is_value = False
            elif not each.startswith(("-", "+")):
                return False  # `each` is the code or its file, so `argument` is only passed to it
            elif re.fullmatch(self.with_value, each):
                is_value = True
            elif re.fullmatch(f"-[A-Za-z]*[{self.code}][A-Za-z]*|{_LONG}", each):
                is_code = True
        has_code = re.match(f"-[A-Za-z]*[{self.code}]|{_LONG}=", argument)
        return not is_value and (is_code or bool(has_code))


_LONG = "--(?:command|eval|print)"
_INTERPRETERS = (
    _Interpreter("(?:ba|da|z|k|a|fi|c|tc)?sh", "c", "[-+][A-Za-z]*[oO]|--(?:rcfile|init-file)"),
    _Interpreter("(?:python|pypy)[0-9.]*", "c", "-[A-Za-z]*[WX]"),
    _Interpreter("perl", "eE", "-I"),
    _Interpreter("ruby", "e", "-[rIC]"),
    _Interpreter("node", "ep", "-r|--require|--import"),
    _Interpreter("php", "rBRE", "-[cd]"),
    _Interpreter("lua", "e", "-l"),
    _Interpreter("R|Rscript|julia", "eE"),
)


def places(command: Sequence[str]) -> frozenset[str]:
    """Return the names in the command's placeholders: parameters, and perhaps TRAINING_DATA_URI."""
    return frozenset(name for argument in _without_code(command) for name in _names(argument))


@lru_cache  # the search is slow, and the commands come from a few algorithms
def is_template(command: tuple[str, ...]) -> bool:
    """Return whether `filled` may change the command."""
    return any(_FLAG.fullmatch(argument) or _PLACE.search(argument) for argument in _without_code(command))


def problem(command: Sequence[str], parameters: Mapping[str, Parameter]) -> str | None:
    """Return the first problem with a command's placeholders for these parameters; None if there is none."""
    for number, argument in enumerate(command):
        is_code = _is_code(command, number)
        begin = _BEGIN_OF_FLAG.search(argument)
        if begin and begin[1] in parameters and not is_code and not _FLAG.fullmatch(argument):
            return (
                f"argument {number}, {quoted(argument)}: {{{begin[1]}?TEXT}} has to be a whole argument, "
                "with no braces in TEXT"
            )
        for name in _names(argument):
            where = f"argument {number}, {quoted(argument)}: "
            if name not in parameters and name != DATA_URI:
                if is_code:
                    continue  # braces have another meaning in code, as in {n} of an f-string
                allowed = ", ".join([*sorted(parameters)[:20], DATA_URI])
                return (
                    f"{where}{quoted(name)} is not a parameter of the algorithm; allowed: {allowed}; for the "
                    f"text itself write {{{{{name}}}}}"
                )
            if number == 0:
                return f"{where}the program itself cannot be a parameter"
            if is_code:
                return (
                    f"{where}a parameter is not allowed in text that {quoted(command[0])} runs as code; give "
                    "it as a separate argument, or read the environment variable with its name"
                )
            flag = _FLAG.fullmatch(argument)
            if flag and (name == DATA_URI or parameters[name].type != "bool"):
                return f"{where}{quoted(name)} before ? must be a parameter of type bool"
    return None


def filled(
    command: Sequence[str], parameters: Mapping[str, Parameter], values: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the command, with its placeholders replaced by `values`.

    Parameters that have no value are not in `values`. Raises InvalidField for a value that the program would
    take for an option.
    """
    arguments: list[str] = []
    option = False  # whether the previous argument is an option without a placeholder
    for number, argument in enumerate(command):
        if _is_code(command, number):
            arguments.append(argument)
            option = False
            continue
        names = list(_names(argument))
        if flag := _FLAG.fullmatch(argument):
            if values.get(flag[1]) in ("true", "1"):
                arguments.append(flag[2])
            option = False
            continue
        if any(name not in values for name in names):
            if option and argument == f"{{{names[0]}}}":
                arguments.pop()
            option = False
            continue
        text = _PLACE.sub(lambda place: f"{{{place[1]}}}" if place[1] else values[place[2]], argument)
        if names and text.startswith("-") and not argument.startswith("-"):
            _check_no_option(names[0], parameters.get(names[0]), text)
        arguments.append(text)
        option = not names and len(arguments) > 1 and bool(re.match(r"-[^-]|--.", text))
    return tuple(arguments)


def _names(argument: str) -> Iterator[str]:
    if flag := _FLAG.fullmatch(argument):
        yield flag[1]
        return
    for place in _PLACE.finditer(argument):
        if place[2]:
            yield place[2]


def _without_code(command: Sequence[str]) -> Iterator[str]:
    return (argument for number, argument in enumerate(command) if not _is_code(command, number))


def _is_code(command: Sequence[str], number: int) -> bool:
    """Return whether an interpreter runs argument `number` of the command, or a part of it, as code."""
    return _is_split(command, number) or any(
        re.fullmatch(interpreter.names, command[position].rpartition("/")[2])
        and interpreter.runs_as_code(command[position + 1 : number], command[number])
        for position in range(number)
        for interpreter in _INTERPRETERS
    )


def _is_split(command: Sequence[str], number: int) -> bool:
    """Return whether argument `number` of the command is the text of `env -S`, or follows this text.

    `env` splits the text into a command, which may end with a shell's -c. So the next argument may be code,
    too.
    """
    for position in range(number):
        if command[position].rpartition("/")[2] != "env":
            continue
        is_value = False
        for each in command[position + 1 : number + 1]:
            if is_value:
                is_value = False
            elif re.match("-[A-Za-z0]*S|--s", each):
                return True
            elif re.fullmatch("-[A-Za-z0]*[uC]|--(?:unset|chdir)", each):
                is_value = True
            elif not each.startswith("-"):
                break
    return False


def _check_no_option(name: str, parameter: Parameter | None, text: str) -> None:
    if parameter is not None and parameter.type in ("int", "float"):
        return
    raise InvalidField(
        f"parameters.{name}",
        f"{quoted(text)} is not allowed: it begins with -, so the program would take it for an option",
    )
