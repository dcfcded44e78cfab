"""A preset that changes shows in a golden file; other files there are of networks."""

import difflib

import pytest

from tests.golden.refresh import FILES, FOLDER, kept, text_of


@pytest.mark.parametrize("file", [*FILES, "defaults.json"])
def test_preset_is_what_its_golden_file_says(file):
    path = FOLDER / file
    frozen = path.read_text() if path.exists() else ""
    difference = difflib.unified_diff(
        frozen.splitlines(), text_of(file).splitlines(), "golden", "preset", lineterm=""
    )
    changed = "\n".join(difference)
    assert not changed, (
        f"{file} is no longer what the preset is; if that is meant, run\n"
        f"    python -m tests.golden.refresh\nand commit the file:\n{changed}"
    )


def test_there_is_no_golden_file_of_a_preset_that_is_gone():
    assert kept() == set(FILES)
