"""Sections of Markdown pages that a program writes; what is written by hand beside them stays.

One rule: a section begins with its title (`## ...`) and ends before the next one, and a run replaces its own only.
"""

from pathlib import Path


def with_section(page: str, section: str, *, before: str | None = None) -> str:
    """The page with this section where its predecessor of the same title stood.

    Without a predecessor it stands before the first section whose title begins with `before`, or at the end.
    """
    title, _, body = section.strip().partition("\n")
    head, *sections = f"\n{page.rstrip()}\n".split("\n## ")
    titles = [one.partition("\n")[0] for one in sections]
    new = f"{title.removeprefix('## ')}\n{body.rstrip()}\n"
    if title.removeprefix("## ") in titles:
        sections[titles.index(title.removeprefix("## "))] = new
    else:
        followed = (place for place, one in enumerate(titles) if before is not None and one.startswith(before))
        sections.insert(next(followed, len(sections)), new)
    return "\n\n## ".join(one.strip("\n") for one in (head, *sections)) + "\n"


def with_kept_sections(page: str, fresh: str) -> str:
    """The fresh page, followed by the sections of the page before it that it does not have itself."""
    _, *sections = f"\n{page.rstrip()}\n".split("\n## ")
    written = {line.removeprefix("## ") for line in fresh.splitlines() if line.startswith("## ")}
    kept = [one.strip("\n") for one in sections if one.partition("\n")[0] not in written]
    return "\n\n## ".join((fresh.strip("\n"), *kept)) + "\n"


def rewrite(file: Path, fresh: str) -> None:
    """Write the page, and keep the sections of it that are written by hand."""
    page = file.read_text(encoding="utf-8") if file.exists() else ""
    file.write_text(with_kept_sections(page, fresh), encoding="utf-8")
