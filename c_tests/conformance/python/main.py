# SPDX-License-Identifier: Apache-2.0
"""main.py TABLE...: runs the cases of tables through the Python package. README.md of the folder above describes them."""

import pathlib
import sys
import tempfile

import calls
import kvmem
from step import Failed, Step


class State:
    """The objects of a case, by name, and the bytes that its steps have stored."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.objects, self.stored, self.adopted, self.arrived = {}, {}, {}, {}

    def end(self):
        for found in reversed(self.objects.values()):
            found.close()

    def find(self, name, kind=object):
        if name not in self.objects:
            raise Failed(f"there is no object {name!r}")
        found = self.objects[name]
        if not isinstance(found, kind):
            raise Failed(f"{name!r} is a {type(found).__name__}")
        return found

    def path(self, text):
        return str(self.folder / text[1:]) if text.startswith("@") else text


def run(step, state):
    """Makes the call of a step and compares its outcome."""
    if step.call in calls.CREATE and step.name in state.objects:
        raise Failed(f"there is an object {step.name!r} already")
    status, failure = "OK", None
    try:
        if step.call in calls.CREATE:
            state.objects[step.name] = calls.CREATE[step.call](step, state)
        elif step.call in calls.OTHER:
            status = calls.OTHER[step.call](step, state) or "OK"
        else:
            simple(step, state.find(step.name))
    except kvmem.Error as error:
        failure, status = error, error.status.name
    step.given.check_known(step.call)
    if status != step.status:
        raise Failed(f"expected {step.status}, found {status} {failure or ''}")
    if failure is not None:
        cause = failure.cause
        step.result = {"domain": cause.domain.name.lower() if cause else "none", "cause": cause.name if cause else ""}
        if (part := step.wanted.text("contains")) and part not in failure.message:
            raise Failed(f"expected a message with {part!r}, found {failure.message!r}")
    for key, wanted in step.wanted.unknown():
        if key not in step.result:
            raise Failed(f"{step.call} returns no {key!r}")
        if normal(step.result[key]) != normal(state.path(wanted)):
            raise Failed(f"expected {key}={wanted}, found {step.result[key]}")


def simple(step, found):
    """A call whose arguments are an object, blocks and numbers: region_get_holders is Region.holders, and keys are arguments in order."""
    noun, name = f"{type(found).__name__.lower()}_", step.call
    name = name.removeprefix(noun)
    if not step.call.startswith(noun) or not hasattr(type(found), name := name.removeprefix("get_")):
        raise Failed(f"there is no call {step.call!r} of a {type(found).__name__}")
    result = getattr(found, name)
    if callable(result):
        given = step.given
        result = result(*(given.numbers(key) if key == "blocks" else given.number(key) for key in given.keys()))
    if isinstance(result, (list, tuple)) and not hasattr(result, "_fields"):  # raise_epochs returns epochs
        step.result[name.rpartition("_")[2]] = ",".join(map(str, result))
    for key in getattr(result, "_fields", ()):
        step.result[key] = getattr(result, key)


def normal(value):
    """Makes equal values equal text: numbers of any base, flags in any order."""

    def one(word):
        try:
            return str(int(word, 0))
        except ValueError:
            return "+".join(sorted(word.split("+")))

    return ",".join(one(word) for word in str(int(value) if isinstance(value, bool) else value).split(","))


def run_table(path):
    cases = steps = 0
    state, folder = None, None
    for number, line in enumerate(pathlib.Path(path).read_text().splitlines(), 1):
        if line.startswith("#") or not line.strip():
            continue
        try:
            if line.startswith("case "):
                if state is not None:
                    state.end()
                    folder.cleanup()
                folder = tempfile.TemporaryDirectory()
                state = State(folder.name)
                cases += 1
                continue
            if state is None:
                raise Failed("a step before the first case")
            run(Step(line), state)
        except Failed as failure:
            sys.exit(f"{path}:{number}: {failure}")
        steps += 1
    if state is not None:
        state.end()
        folder.cleanup()
    print(f"{pathlib.Path(path).name}: {cases} cases, {steps} steps")


if __name__ == "__main__":
    for table in sys.argv[1:]:
        run_table(table)
