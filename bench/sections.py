"""A section of a Markdown page that a program writes; what is written by hand around it stays.

One rule: a section begins with its title (`## ...`) and ends before the next one, and a run replaces its own only.
"""


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
