"""Small files at a location, be it a folder or on an object store: notes, marks, and the files of Spark's checkpoints.

A file is written whole or not at all. An absent one is a `FileNotFoundError` in both places.
"""

import os
import shutil
from pathlib import Path

from headgate.base.locations import Location
from headgate.tables.object_store import (
    delete_objects,
    has_object,
    names_beneath,
    objects_beneath,
    put_object,
    read_object,
)


def has_file(file: Location) -> bool:
    return file.is_file() if isinstance(file, Path) else has_object(file)


def read_file(file: Location) -> str:
    if isinstance(file, Path):
        return file.read_text(encoding="utf-8")
    return read_object(file)[0].decode()


def write_file(file: Location, content: str) -> None:
    if not isinstance(file, Path):
        put_object(file, content.encode())
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f"{file.name}.new")
    with new.open("w", encoding="utf-8") as unfinished:
        unfinished.write(content)
        unfinished.flush()
        os.fsync(unfinished.fileno())
    new.replace(file)


def remove_file(file: Location) -> None:
    if isinstance(file, Path):
        file.unlink(missing_ok=True)
    else:
        delete_objects(file, [file.key])


def names_in(folder: Location) -> list[str]:
    """The names of files and folders directly in this one; none when it is absent."""
    if isinstance(folder, Path):
        return [entry.name for entry in folder.iterdir()] if folder.exists() else []
    return names_beneath(folder)


def remove_folder(folder: Location, *, last: str | None = None) -> None:
    """Remove a folder with all that is in it; the file `last` only after everything else."""
    if isinstance(folder, Path):
        shutil.rmtree(folder, ignore_errors=True)
        return
    final = None if last is None else (folder / last).key
    keys = [one.key for one in objects_beneath(folder)]
    delete_objects(folder, [key for key in keys if key != final])
    delete_objects(folder, [key for key in keys if key == final])
