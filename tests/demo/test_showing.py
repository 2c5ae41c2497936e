# SPDX-License-Identifier: Apache-2.0
# The table, the sentences, the report, the order of runs, the progress line.
import re
import xml.etree.ElementTree

import findings
import progress
import report
import schedule
import table
import traces

TITLES = {(row, algorithm): f"{row} {algorithm}" for row in ("variants", "light") for algorithm in ("direct", "ring")}
RUN = {"turns": 2, "light_turns": 1, "algorithms": ["direct", "ring"], "light_algorithms": ["direct"]}


def test_the_bar_of_the_longest_time_is_the_longest(a_summary):
    rows = [row for row in a_summary["variants"] if row["algorithm"] == "direct"]
    tight, forgiving = table.bars(rows)
    assert tight.count("█") == table.BAR_COLUMNS
    assert forgiving.count("█") == round(table.BAR_COLUMNS * 9 / 12)
    assert "-25.0%" in forgiving and "%" not in tight


def test_a_table_has_a_line_for_each_row_and_all_of_one_width(a_summary):
    lines = table.table(a_summary["variants"])
    assert len(lines) == 1 + len(a_summary["variants"])
    assert len({len(line) for line in lines}) == 1
    assert "20.00%" in lines[2]


def test_tcp_shows_no_counters_that_it_does_not_have(a_result):
    import results
    row = results.merge([a_result("tcp", forgiven=0)])
    assert table.cells([row], row)[6:14] == ["-"] * 8


def test_the_summary_shows_both_rows_under_their_titles(a_summary):
    text = table.text(a_summary, TITLES)
    for title in ("variants direct", "variants ring", "light direct"):
        assert title in text


def test_a_policy_that_was_slower_is_said_to_be_slower(a_summary):
    for row in a_summary["variants"]:
        if row["name"] == "forgive-all":
            row["total_s"] = 15.0
    assert "forgive-all took 25.0 % more time than tight" in findings.lead(a_summary)[0]


def test_a_difference_within_the_noise_is_not_called_a_difference(a_summary):
    for row in a_summary["variants"]:
        row["total_s"] = 12.1 if row["name"] == "forgive-all" else 12.0
    assert "as long as tight" in findings.lead(a_summary)[0]


def write_report(summary, tmp_path):
    vesting = traces.Vesting("forgive-all", "direct", 4, 1000,
                             [traces.VestingPoint(i, 100 * i, 50 * i, 0) for i in range(5)])
    flows = [traces.Flow(policy, "direct", [traces.RatePoint(i / 10, 1e8, i % 2 == 0) for i in range(5)])
             for policy in ("tight", "forgive-all")]
    report.write(summary, vesting, flows, str(tmp_path / "report.html"), str(tmp_path / "pictures"))
    return (tmp_path / "report.html").read_text()


def test_the_report_needs_no_other_file_and_no_network(a_summary, tmp_path):
    page = write_report(a_summary, tmp_path)
    assert not re.search(r'(src|href)="(?!#)(?!https?://(www\.w3\.org|purl|creativecommons))', page)
    assert "<script" not in page
    assert "a &lt;cpu&gt;" in page


def test_the_plots_are_well_formed_and_their_ids_do_not_clash(a_summary, tmp_path):
    page = write_report(a_summary, tmp_path)
    pictures = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(pictures) == 4
    for picture in pictures:
        xml.etree.ElementTree.fromstring(picture)
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert sorted(path.name for path in (tmp_path / "pictures").iterdir()) == ["rates.png", "steps.png", "times.png",
                                                                              "vesting.png"]


def test_a_failure_stands_in_the_report(a_summary, tmp_path):
    a_summary["failures"] = ["direct tight: 3 wrong elements"]
    assert "direct tight: 3 wrong elements" in write_report(a_summary, tmp_path)


def test_policies_take_turns():
    blocks = schedule.blocks(RUN, ["plain", "tight"])
    assert [(block.row, block.turn, block.algorithm) for block in blocks] == [
        ("main", 1, "direct"), ("main", 1, "ring"), ("light", 1, "direct"),
        ("main", 2, "direct"), ("main", 2, "ring")]
    assert [run.policy for run in blocks[0].runs] == ["plain", "tight"]


def test_in_user_space_there_is_no_tcp_row():
    assert schedule.select("", False)[0][0] == "tcp"
    assert "tcp" not in schedule.select("", True)[0]


def test_a_further_turn_that_does_not_fit_is_left_out_whole():
    first, *_, last = schedule.blocks(RUN, ["plain"])
    budget = schedule.Budget(100)
    assert budget.fits(last, 0)
    budget.note(first, 40)
    budget.note(schedule.blocks(RUN, ["plain"])[1], 40)
    assert budget.fits(last, 59) and not budget.fits(last, 61)
    assert budget.fits(first, 1000)


def test_time_left_is_shown_in_minutes_and_seconds():
    assert progress.duration(125.4) == "2:05"
