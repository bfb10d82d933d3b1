"""Every table in the docs says by which command it is made, and the command names that page."""

import re
import shlex
from pathlib import Path

import pytest

from doublefeature.evaluation.peers.registry import GROUPS, KNOWN
from doublefeature.evaluation.peers.table import BEGIN, END
from doublefeature.evaluation.splits import PROTOCOLS

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs" / "peers").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_command_of_a_page_makes_that_page(page):
    text = page.read_text(encoding="utf-8")
    commands = re.findall(r"^```\n(doublefeature compare.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert len(commands) == 1
    words = shlex.split(commands[0].replace("\\\n", " "))
    told = dict(zip(words[3::2], words[4::2], strict=True))
    assert told["--markdown"] == page.relative_to(ROOT).as_posix()
    assert told["--protocol"] in PROTOCOLS
    assert set(told["--models"].split(",")) <= {*GROUPS, *KNOWN}
    assert text.count(BEGIN) == text.count(END) == 1


def test_every_page_is_listed():
    listed = (ROOT / "docs" / "peers.md").read_text(encoding="utf-8")
    assert PAGES
    assert all(f"peers/{page.name}" in listed for page in PAGES)
