# SPDX-License-Identifier: Apache-2.0
# The results in sentences: only what the figures say, in either direction.
from results import change, of

SMALLEST_SHARE = 0.02  # below this, two turns on a shared machine tell nothing


def _against(name, variants, variant, baseline):
    value = change(variants, variant, baseline)
    if value is None:
        return None
    if abs(value) < SMALLEST_SHARE:
        return f"{name} took as long as {baseline} ({100 * value:+.1f} %)"
    return f"{name} took {abs(100 * value):.1f} % {'less' if value < 0 else 'more'} time than {baseline}"


def lead(results):
    """Sentences for each algorithm of the main row."""
    lines = []
    variants = results["variants"]
    for algorithm in dict.fromkeys(variant["algorithm"] for variant in variants):
        lines += _of_algorithm(variants, algorithm)
    return lines


def _of_algorithm(variants, algorithm):
    texts = []
    reduce, everything, alone, tcp = (of(variants, algorithm, name)
                                      for name in ("forgive-reduce", "forgive-all", "exempt-only", "tcp"))
    for variant in (reduce, everything):
        if variant is None:
            continue
        text = _against(variant["name"], variants, variant, "tight")
        if text and variant["gradient_bytes"]:
            share = 100 * variant["forgiven_bytes"] / variant["gradient_bytes"]
            to_plain = change(variants, variant, "plain")
            beside = "" if to_plain is None else f" ({100 * to_plain:+.1f} % against plain)"
            texts.append(f"{text}{beside} and gave up {share:.2f} % of the gradient bytes")
    if alone is not None:
        text = _against("the exemption alone", variants, alone, "tight")
        if text:
            texts.append(text + ", losing nothing")
    if tcp is not None and everything is not None:
        text = _against("forgive-all", variants, everything, "tcp")
        if text:
            texts.append(text)
    return [f"{algorithm}: " + "; ".join(texts) + "."] if texts else []
