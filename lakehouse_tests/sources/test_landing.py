"""The landing zone: whole files or none, the same bytes again, and a listing that sees only what is complete."""

import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

import lakehouse
from lakehouse.contracts import Landing
from lakehouse.errors import ContractError, GeneratorError, SourceError
from lakehouse.sample.events import land_events
from lakehouse.sample.faults import Faults
from lakehouse.sample.generator import generate_events
from lakehouse.sample.retail import land_sample_online_retail
from lakehouse.sources import landing
from lakehouse.sources.landing import landing_files, never_read
from lakehouse_tests.fixtures.landed import EVENTS, RETAIL, land_online_retail

START = date(2026, 3, 2)


def put(path: Path, content: bytes = b"x") -> Path:
    """A file with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def tree(root: Path) -> dict[str, bytes]:
    """Every file under a folder, hidden ones too."""
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def exports(tmp_path: Path) -> Path:
    """A folder of three daily exports among things that are none."""
    folder = tmp_path / "exports"
    for day in ("2026-03-02", "2026-03-03", "2026-03-05"):
        put(folder / f"{day}.csv.gz", gzip.compress(day.encode()))
    for name in ("README.md", "2026-03-04.csv", "2026-02-30.csv.gz", ".2026-03-04.csv.gz", "2026-03-04.csv.gz.part"):
        put(folder / name)
    (folder / "2026-03-06.csv.gz").mkdir()
    return folder


def test_exports_are_copied_by_day(exports: Path, tmp_path: Path) -> None:
    """Only real days of the right form are taken, byte for byte."""
    landed = land_online_retail(exports, tmp_path / "root")
    assert [(each.arrival_date.day, each.outcome) for each in landed] == [(2, "new"), (3, "new"), (5, "new")]
    assert tree(tmp_path / "root") == {
        f"landing/online_retail/{each.path.name}": (exports / each.path.name).read_bytes() for each in landed
    }


def test_a_range_is_inclusive_and_may_be_open(exports: Path, tmp_path: Path) -> None:
    """Both ends count; a missing end takes all there is on that side."""

    def days(start: date | None, end: date | None) -> list[int]:
        return [each.arrival_date.day for each in land_online_retail(exports, tmp_path / "root", start, end)]

    assert days(START, START) == [2]
    assert days(date(2026, 3, 3), None) == [3, 5]
    assert days(None, date(2026, 3, 4)) == [2, 3]


@pytest.mark.parametrize(
    ("start", "end", "told"),
    [
        (date(2026, 3, 4), date(2026, 3, 4), "got 3 of other days, 2026-03-02 to 2026-03-05; choose"),
        (date(2027, 1, 1), None, " from 2027-01-01, got 3 of other days"),
        (date(2026, 3, 5), date(2026, 3, 2), "got 2026-03-05 to 2026-03-02; swap them"),
    ],
)
def test_a_range_without_files_is_an_error(
    exports: Path, tmp_path: Path, start: date, end: date | None, told: str
) -> None:
    """The message names the folder's own days."""
    with pytest.raises(SourceError, match=told):
        land_online_retail(exports, tmp_path / "root", start, end)


def test_a_folder_without_exports_is_an_error(tmp_path: Path) -> None:
    """Missing, empty, or a file: each by its path."""
    with pytest.raises(SourceError, match="missing, which is none"):
        land_online_retail(tmp_path / "missing", tmp_path / "root")
    (tmp_path / "empty").mkdir()
    expected = r"expected \{day\}.csv.gz files in .*empty, got "
    with pytest.raises(SourceError, match=expected + "no file at all; choose another"):
        land_online_retail(tmp_path / "empty", tmp_path / "root")
    for name in ("a.csv", "deep/b.csv", "c/d.txt", "2026-03-02.csv", "2026-02-30.csv.gz", "z"):
        put(tmp_path / "empty" / name)
    told = "only 2026-02-30.csv.gz, 2026-03-02.csv, a.csv, z, c/d.txt, …; choose another .*`files` of its Landing"
    with pytest.raises(SourceError, match=expected + told):
        land_online_retail(tmp_path / "empty", tmp_path / "root")
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        ((), ["2026-03-02.csv", "2026-03-02.csv.gz", "2026-03-02/a.csv", "2026-03-02/b.csv.gz"]),
        (("till-*_{day:%d%m%Y}.txt",), ["till-7_02032026.txt", "till-a b_02032026.txt"]),
        (("*/{day:%Y%m%d}/*.csv", "{day}.csv"), ["north/20260302/a.csv", "2026-03-02.csv"]),
        (("{day}*.csv", "{day}.csv[.x]"), ["2026-03-02.csv", "2026-03-02-b.csv", "2026-03-02.csv.x"]),
    ],
)
def test_a_source_says_how_its_files_are_called(patterns: tuple[str, ...], names: list[str], tmp_path: Path) -> None:
    """A new source needs its `Landing` and nothing else; a file that two patterns fit is landed once."""
    tills = Landing("tills", "csv", ("a",), files=patterns)
    for name in [
        *names,
        "2026-02-30.csv",
        ".2026-03-02.csv",
        "other.txt",
        "2026-03-02/_c.csv",
        "02032026.txt",
        "x/y/z.csv",
    ]:
        put(tmp_path / "exports" / name)
    landed = landing.land(tmp_path / "exports", tmp_path / "root", tills)
    zone = tmp_path / "root" / "landing" / "tills"
    assert sorted(each.path.relative_to(zone).as_posix() for each in landed) == sorted(names)
    assert {each.arrival_date for each in landed} == {START}
    files = landing_files(tmp_path / "root", tills, START, START)
    assert sorted(file.path for file in files) == sorted(each.path for each in landed)
    assert landing_files(tmp_path / "root", tills, start=START + timedelta(days=1)) == []


@pytest.mark.parametrize(
    "pattern", ["", "a.csv", "{day}/{day}.csv", "{day:%Y-%m}.csv", "{day:%Y/%m/%d}.csv", "{date}.csv"]
)
def test_a_pattern_that_tells_no_day_is_refused(pattern: str) -> None:
    """Or not which: the message shows one that does."""
    with pytest.raises(ContractError, match=r"expected one day of %Y, %m and %d, got"):
        Landing("tills", "csv", ("a",), files=(pattern,))


Land = Callable[[Path], list[landing.Landed]]
LANDINGS: dict[str, Land] = {
    "events": lambda root: land_events(root, START, 3, 80, 1, Faults.all(), files_per_day=2),
    "plain events": lambda root: land_events(root, START, 3, 80, 1, compress=False),
    "retail sample": lambda root: land_sample_online_retail(root, START, 3, 80, 1),
}


@pytest.mark.parametrize("land", LANDINGS.values(), ids=LANDINGS)
def test_landing_again_changes_nothing(land: Land, tmp_path: Path) -> None:
    """Not a byte and not a modification time; another root gets the same bytes."""
    first = land(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in (each.path for each in first)}
    again = land(tmp_path)
    assert {each.outcome for each in first} == {"new"}
    assert {each.outcome for each in again} == {"unchanged"}
    assert before == {path: path.stat().st_mtime_ns for path in before}
    land(tmp_path / "other")
    assert tree(tmp_path / "other") == {k: v for k, v in tree(tmp_path).items() if not k.startswith("other")}


def test_changed_content_replaces_the_file(exports: Path, tmp_path: Path) -> None:
    """Of the same size too; only that day is written."""
    land_online_retail(exports, tmp_path)
    export = exports / "2026-03-03.csv.gz"
    export.write_bytes(export.read_bytes()[::-1])
    outcomes = [each.outcome for each in land_online_retail(exports, tmp_path)]
    assert outcomes == ["unchanged", "replaced", "unchanged"]
    assert (tmp_path / "landing/online_retail/2026-03-03.csv.gz").read_bytes() == export.read_bytes()


def test_event_files_hold_the_generated_lines(tmp_path: Path) -> None:
    """The parts of a day, one after another, are its lines in order, each ended by a line feed, blank ones included."""
    faults = Faults.all(0.05)
    landed = land_events(tmp_path, START, 2, 100, 1, faults, files_per_day=3)
    for number in (0, 1):
        day = START + timedelta(days=number)
        files = [each.path for each in landed if each.arrival_date == day]
        assert [path.relative_to(tmp_path).as_posix() for path in files] == [
            f"landing/events/{day}/part-{part:04d}.jsonl.gz" for part in range(3)
        ]
        contents = [gzip.decompress(path.read_bytes()) for path in files]
        assert [content.count(b"\n") for content in contents] == [33, 33, 34]
        lines = generate_events(day, 100, 1, faults).lines
        assert b"".join(contents) == b"".join(line + b"\n" for line in lines)


def test_gzip_carries_no_time_and_no_name(tmp_path: Path) -> None:
    """Header bytes 3 to 8: no flags (so no name), modification time zero."""
    (landed,) = land_events(tmp_path, START, 1, 5, 1)
    assert landed.path.read_bytes()[3:8] == bytes(5)


def test_parts_of_an_earlier_landing_go(tmp_path: Path) -> None:
    """Fewer files, or none compressed any more: the old parts would repeat the day; files of other names are kept."""
    land_events(tmp_path, START, 1, 20, 1, files_per_day=3)
    other = put(tmp_path / "landing/events/2026-03-02/from-elsewhere.jsonl")
    landed = land_events(tmp_path, START, 1, 20, 1, compress=False)
    assert [(each.path.name, each.outcome) for each in landed] == [
        ("part-0000.jsonl", "new"),
        ("part-0000.jsonl.gz", "removed"),
        ("part-0001.jsonl.gz", "removed"),
        ("part-0002.jsonl.gz", "removed"),
    ]
    assert [file.path.name for file in landing_files(tmp_path, EVENTS)] == [other.name, "part-0000.jsonl"]


@pytest.mark.parametrize(("days", "files"), [(0, 1), (1, 0)])
def test_nothing_to_land_is_refused(days: int, files: int, tmp_path: Path) -> None:
    """No days, or no file a day."""
    with pytest.raises(GeneratorError, match="or more, got 0"):
        land_events(tmp_path, START, days, 1, 1, files_per_day=files)
    assert not list(tmp_path.iterdir())


def test_a_failed_write_leaves_the_old_file_and_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk at the flush: the day that was there is still there, whole, and nothing else is."""
    land_events(tmp_path, START, 1, 20, 1)
    before = tree(tmp_path)

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        land_events(tmp_path, START, 1, 20, 2)
    assert tree(tmp_path) == before


CRASH = """
import os, sys
from datetime import date
from pathlib import Path
Path.replace = lambda self, target: os._exit(9)  # dies after the write and before the file gets its name
from lakehouse.sample.events import land_events
land_events(Path(sys.argv[1]), date(2026, 3, 2), 1, 20, int(sys.argv[2]))
"""


@pytest.mark.slow
def test_a_crash_before_the_rename_shows_nothing(tmp_path: Path) -> None:
    """The complete draft lies there, hidden: the listing sees the old state, and landing again fixes it."""

    def crash(seed: int) -> None:
        command = [sys.executable, "-c", CRASH, str(tmp_path), str(seed)]
        assert subprocess.run(command, check=False, cwd=Path(lakehouse.__file__).parents[1]).returncode == 9

    crash(1)
    (draft,) = tree(tmp_path)
    assert Path(draft).name.startswith(".")
    assert landing_files(tmp_path, EVENTS) == []
    (landed,) = land_events(tmp_path, START, 1, 20, 1)
    assert landed.outcome == "new"
    before = landing_files(tmp_path, EVENTS)
    crash(2)
    assert landing_files(tmp_path, EVENTS) == before
    assert before[0].path.read_bytes() == landed.path.read_bytes()


def test_a_reader_never_sees_half_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever data is flushed, before and after each rename, the listing holds only files that decompress whole."""
    sizes = []
    flush = os.fsync

    def looking(descriptor: int) -> None:
        flush(descriptor)
        files = landing_files(tmp_path, EVENTS)
        sizes.append(len(files))
        assert all(gzip.decompress(file.path.read_bytes()).count(b"\n") == 10 for file in files)

    monkeypatch.setattr(os, "fsync", looking)
    land_events(tmp_path, START, 2, 20, 1, files_per_day=2)
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (0, 4)


def test_the_listing_has_days_paths_sizes_and_times(tmp_path: Path) -> None:
    """Sorted by day, then path; both ends of a range count."""
    land_events(tmp_path, START, 3, 20, 1, files_per_day=2)
    files = landing_files(tmp_path, EVENTS)
    assert [(file.arrival_date.day, file.path.name[:9]) for file in files] == [
        (day, f"part-000{part}") for day in (2, 3, 4) for part in (0, 1)
    ]
    for file in files:
        found = file.path.stat()
        assert (file.source, file.size, file.mtime_ns) == ("events", found.st_size, found.st_mtime_ns)
    middle = date(2026, 3, 3)
    assert landing_files(tmp_path, EVENTS, middle, middle) == files[2:4]
    assert landing_files(tmp_path, EVENTS, start=middle) == files[2:]
    assert landing_files(tmp_path, EVENTS, end=middle) == files[:4]


def test_the_listing_passes_over_what_is_no_landed_file(tmp_path: Path) -> None:
    """Drafts, odd names, days that do not exist, files for folders and folders for files."""
    events = tmp_path / "landing/events"
    retail = tmp_path / "landing/online_retail"
    good = [put(events / "2026-03-02" / name) for name in ("a b+c.jsonl", "part-7.jsonl.gz")]
    for name in (".part-0000.jsonl", "_part.jsonl", "part.json", "part.jsonl.gz.tmp", "part.jsonl.bz2", "_SUCCESS"):
        put(events / "2026-03-02" / name)
    for folder in ("2026-02-30", "2026-3-2", ".2026-03-04", "2026-03-04.old", "latest", "２０２６-03-04"):
        put(events / folder / "part-0000.jsonl")
    put(events / "2026-03-05")
    (events / "2026-03-02" / "folder.jsonl").mkdir()
    (events / "2026-03-02" / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    put(retail / "2026-03-02.csv.gz")
    for name in ("2026-03-02.csv", "2026-03-03.csv.gz.tmp", ".2026-03-03.csv.gz", "x2026-03-03.csv.gz"):
        put(retail / name)
    assert [file.path for file in landing_files(tmp_path, EVENTS)] == good
    assert [file.path for file in landing_files(tmp_path, RETAIL)] == [retail / "2026-03-02.csv.gz"]


def test_nothing_landed_is_an_empty_list(tmp_path: Path) -> None:
    """A new lakehouse has no landing folder yet."""
    assert landing_files(tmp_path, EVENTS) == landing_files(tmp_path, RETAIL) == []


def test_the_listing_opens_only_the_folders_in_its_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One listing of the source, one for each existing day in the range, however many days have landed."""
    land_events(tmp_path, START, 5, 2, 1)
    listed: list[str] = []
    scan = os.scandir

    def noting(folder: str | Path) -> Any:
        listed.append(Path(folder).name)
        return scan(folder)

    monkeypatch.setattr(os, "scandir", noting)
    landing_files(tmp_path, EVENTS, date(2026, 3, 5), date(2026, 12, 31))
    assert sorted(listed) == ["2026-03-05", "2026-03-06", "events"]


def test_a_file_that_no_pattern_fits_is_told(tmp_path: Path) -> None:
    """Without it, a producer that misspells a day would never be heard of: every run passes its file over."""
    assert never_read(tmp_path, [RETAIL, EVENTS]) == []
    read = ["online_retail/2026-03-01.csv.gz", "events/2026-03-01/part-0000.jsonl", "events/2026-03-01/.part.jsonl"]
    strays = [
        *("events/2026-02-30/part-0000.jsonl", "online_retail/0001-01-01.csv.gz", "online_retail/2026-3-2.csv.gz"),
        *("online_retail/9999-12-31.csv.gz", "tills/2026-03-01.csv"),
    ]
    for name in [*read, *strays]:
        path = tmp_path / "landing" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    assert never_read(tmp_path, [RETAIL, EVENTS]) == strays
