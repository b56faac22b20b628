"""Files at rest: the one room that touches tables, quarantines, the landing zone, caches and records as files.

The interface is small, so that object storage can be put behind it: a store has to list, say what a name stands for
(`stat`), open, put, put if absent, link (there: copy), delete, and wait until what was written is kept (`fsync`).
Parquet files are read and written through `store.parquet`. Two others write beside this room: the engine its staged
files, and delta-rs the checkpoints and the entries that create a table, add columns or vacuum; what they wrote is
flushed and read here.

| when the call returns | a reader sees | after a power cut |
| --- | --- | --- |
| `write` | maybe a part of it, while it runs | anything: only for names that nobody reads yet |
| `put` | the old content or the new one, whole | one of the two with `flush`; without it maybe an empty file |
| `put_if_absent` | nothing or all of it; of two writers one is refused | all of it, once its folder is flushed |
| `link`, `move` | the whole file under its new name | the name, once its folder is flushed |
| `delete`, `delete_tree` | nothing (of a tree, maybe a part while it runs) | maybe what was deleted: ask again |
| `fsync` | no difference | all of it, the names in the folders above too |

Nothing here knows of tables: what must be on the disk before what is written where the protocol is (`delta.commit`,
`delta.log_writer`, `versions.restore`, `privacy.forget`).
"""

from lakehouse.store.files import (
    DRAFT,
    Facts,
    delete,
    delete_empty_folder,
    delete_tree,
    existing_above,
    exists,
    facts_of,
    folders_below,
    free_bytes,
    fsync,
    fsync_all,
    is_folder,
    is_inside,
    link,
    listed,
    make_folder,
    move,
    names,
    opened,
    put,
    put_if_absent,
    read,
    read_text,
    stat,
    touch,
    walk,
    write,
)

__all__ = [
    "DRAFT",
    "Facts",
    "delete",
    "delete_empty_folder",
    "delete_tree",
    "existing_above",
    "exists",
    "facts_of",
    "folders_below",
    "free_bytes",
    "fsync",
    "fsync_all",
    "is_folder",
    "is_inside",
    "link",
    "listed",
    "make_folder",
    "move",
    "names",
    "opened",
    "put",
    "put_if_absent",
    "read",
    "read_text",
    "stat",
    "touch",
    "walk",
    "write",
]
