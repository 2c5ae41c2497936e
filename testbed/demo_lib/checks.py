# SPDX-License-Identifier: Apache-2.0
# What must hold in every row, whatever the times are; a line for each thing that does not.
MAY_FORGIVE = ("tight", "forgive-reduce", "forgive-all")
MUST_FORGIVE = ("forgive-reduce", "forgive-all")
MAY_DIVERGE = ("tight", "forgive-all")  # a loss in the all-gather phase leaves replicas different: docs/using.md


def check_variant(variant, congested=True):
    """Lines that name the row and what is wrong with it; none: everything holds. `congested`: the row is expected
    to trim, so the forgiving policies must have forgiven something."""
    name, lines = variant["name"], list(variant["faults"])
    if variant["wrong"] != 0:
        lines.append(f"{variant['wrong']} wrong elements")
    if variant["budget_violations"] != 0:
        lines.append(f"the loss budget was violated {variant['budget_violations']} times")
    if name != "tcp" and variant["trims"] != variant["switch_trims"]:
        lines.append(f"the transport saw {variant['trims']} trims, the switch cut {variant['switch_trims']} packets")
    if name not in MAY_FORGIVE and variant["forgiven_bytes"] != 0:
        lines.append(f"{variant['forgiven_bytes']} bytes forgiven, where nothing may be")
    if congested and name in MUST_FORGIVE and variant["forgiven_bytes"] == 0:
        lines.append("nothing was forgiven")
    if name not in MAY_DIVERGE and not variant["ranks_identical"]:
        lines.append("the ranks ended with different results")
    lines += _check_steps(variant)
    return [f"{variant['algorithm']} {name}: {line}" for line in lines]


def _check_steps(variant):
    lines = []
    for step in variant["steps"]:
        if step["forgiven"] > step["expected"]:
            lines.append(f"step {step['step']}: {step['forgiven']} bytes forgiven of {step['expected']} expected")
    total = sum(step["forgiven"] for step in variant["steps"])
    if total != variant["forgiven_bytes"]:
        lines.append(f"the steps' forgiven bytes add up to {total}, not to {variant['forgiven_bytes']}")
    return lines


def check_all(variants, light, congested=("direct", "ring")):
    """All lines of both rows. `congested`: the algorithms whose main row is expected to trim."""
    lines = [line for variant in variants for line in check_variant(variant, variant["algorithm"] in congested)]
    lines += ["light: " + line for variant in light for line in check_variant(variant, congested=False)]
    return lines
