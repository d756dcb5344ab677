"""Text of others on a terminal or in a log line: without control characters."""


def escaped(text: str) -> str:
    """The text with all characters that are not printable escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
