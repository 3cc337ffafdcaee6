"""Splits a command line as a POSIX shell does, and refuses every other construct of a shell.

`shlex` is not used: it passes `;`, `$(...)`, line breaks and patterns through as ordinary characters.
"""

from typing import List, Optional

MOST_CHARACTERS = 1 << 16
"""The longest command line that is split. Ours have some hundred characters."""
_SHELL = frozenset(";&|<>()$`*?[]{}!")
"""Characters with a meaning for a shell wherever they are not quoted."""
_AT_START = frozenset("~#")
"""The same at the beginning of a word."""
_IN_DOUBLE_QUOTES = frozenset("$`")
_ESCAPED_IN_DOUBLE_QUOTES = frozenset('$`"\\')


class NotPlainWords(ValueError):
    """The text is not a list of words; the message is a clause that says why."""


def split_words(text: str) -> List[str]:
    """The words of a command line, without quotes. Raises NotPlainWords when a shell would do more than split it."""
    if len(text) > MOST_CHARACTERS:
        raise NotPlainWords("it is longer than %d characters" % MOST_CHARACTERS)
    if any(character < " " and character != "\t" or character == "\x7f" for character in text):
        raise NotPlainWords("it contains a line break or another control character")
    words: List[str] = []
    word: Optional[List[str]] = None
    place = 0
    while place < len(text):
        character = text[place]
        place += 1
        if character in " \t":
            if word is not None:
                words.append("".join(word))
                word = None
            continue
        if character in _SHELL or (word is None and character in _AT_START):
            raise NotPlainWords("it contains an unquoted %s" % character)
        if word is None:
            word = []
        if character == "'":
            end = text.find("'", place)
            if end < 0:
                raise NotPlainWords("a quote is not closed")
            word.append(text[place:end])
            place = end + 1
        elif character == '"':
            place = _double_quoted(text, place, word)
        elif character == "\\":
            if place == len(text):
                raise NotPlainWords("it ends with a backslash")
            word.append(text[place])
            place += 1
        else:
            word.append(character)
    if word is not None:
        words.append("".join(word))
    return words


def _double_quoted(text: str, place: int, word: List[str]) -> int:
    """Append the text between double quotes to the word; returns the place behind them."""
    while place < len(text):
        character = text[place]
        if character == '"':
            return place + 1
        if character in _IN_DOUBLE_QUOTES:
            raise NotPlainWords("it contains %s between double quotes" % character)
        if character == "\\" and text[place + 1 : place + 2] in _ESCAPED_IN_DOUBLE_QUOTES:
            place += 1
            character = text[place]
        word.append(character)
        place += 1
    raise NotPlainWords("a quote is not closed")
