"""The page on projects has the rights that are enforced."""

import re
from pathlib import Path

from job_tracker.domain.caller import Role
from job_tracker.domain.rights import ACCESS_RIGHTS, BY_ANY_CALLER, CATALOG_RIGHTS, PROGRAM_RIGHTS, RIGHTS

PAGE = (Path(__file__).parents[3] / "docs" / "projects.md").read_text()


def test_the_page_has_the_table_of_rights() -> None:
    shown = dict(re.findall(r"^\| ([A-Z]\w+) \| (.+) \|$", PAGE, re.MULTILINE))
    with_or_without_project = (*ACCESS_RIGHTS.values(), *CATALOG_RIGHTS.values())
    of_those = {right.rpc: shown.pop(right.rpc).partition(";")[0] for right in with_or_without_project}
    assert of_those == {right.rpc: str(right.least) for right in with_or_without_project}
    assert all(rpc in PAGE for rpc in BY_ANY_CALLER)
    assert shown == {
        right.rpc: f"{right.least}; {right.for_others} for jobs of others"
        if right.for_others
        else str(right.least)
        for right in (*RIGHTS.values(), *PROGRAM_RIGHTS.values())
    }


def test_the_page_has_every_role() -> None:
    rows = re.findall(r"^\| ([a-z]+) \| [a-z]", PAGE.partition("## Roles")[2], re.MULTILINE)
    assert [row for row in rows if row not in ("role", "call")] == [*map(str, Role)]
