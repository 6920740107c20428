# SPDX-License-Identifier: Apache-2.0
"""One line of a table."""

import enum


class Failed(Exception):
    """A step that the table does not expect, or that the runner does not know."""


class Values:
    """The keys of one side of a step. Those that no call has looked at are unknown."""

    def __init__(self):
        self.words, self.known = {}, set()

    def add(self, word):
        key, found, value = word.partition("=")
        if not found:
            raise Failed(f"expected key=value, found {word!r}")
        self.words[key] = value

    def text(self, key, default=""):
        self.known.add(key)
        return self.words.get(key, default)

    def __contains__(self, key):
        self.known.add(key)
        return key in self.words

    def number(self, key, default=0):
        text = self.text(key)
        return int(text, 0) if text else default

    def list(self, key):
        text = self.text(key)
        return text.split(",") if text else []

    def numbers(self, key):
        return [int(each, 0) for each in self.list(key)]

    def constant(self, key, kind, default=0):
        """A constant of an enumeration by its word."""
        return member(kind, self.text(key)) if key in self else kind(default)

    def flags(self, key, kind):
        found = kind(0)
        for word in self.text(key).split("+") if key in self else ():
            found |= member(kind, word)
        return found

    def timeout(self):
        """Seconds, or None."""
        text = self.text("timeout_ns", "forever")
        return None if text == "forever" else int(text, 0) / 1e9

    def keys(self):
        return list(self.words)

    def unknown(self):
        return [(key, value) for key, value in self.words.items() if key not in self.known]

    def check_known(self, call):
        for key, _ in self.unknown():
            raise Failed(f"{call} has no key {key!r}")


def member(kind, word):
    try:
        return kind[word.upper()]
    except KeyError:
        raise Failed(f"there is no {word!r} in {kind.__name__}") from None


def words_of(flags):
    """Flags as a table writes them, in the order of their bits."""
    return "+".join(each.name.lower() for each in type(flags) if each in flags and each)


class Step:
    """A call, the object that it creates or acts on, what it is given, and what it must return."""

    def __init__(self, line):
        self.call, *words = line.split()
        self.name, self.status, self.result = "", "OK", {}
        self.given, self.wanted = Values(), Values()
        if words and words[0] != "->" and "=" not in words[0]:
            self.name = words.pop(0)
        side = self.given
        while words:
            word = words.pop(0)
            if word == "->":
                if not words:
                    raise Failed("-> without a status")
                self.status, side = words.pop(0), self.wanted
            else:
                side.add(word)

    def put(self, info, *fields):
        """Results from the fields of a tuple; constants by their words."""
        for field in fields or info._fields:
            value = getattr(info, field)
            if isinstance(value, enum.Enum):
                value = words_of(value) if isinstance(value, enum.Flag) else value.name.lower()
            elif isinstance(value, bytes):
                value = value.decode()
            self.result[field] = value

