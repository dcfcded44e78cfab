"""What the words on a comparison's page mean."""

from churn_jax.comparison.result import QUANTITIES, CompareResult
from churn_jax.comparison.showing.wording import level_text
from churn_jax.escaping import escape


def glossary(result: CompareResult) -> str:
    """A list of every quantity and test that this comparison has."""
    terms: dict[str, str] = {}
    for name in result.quantities:
        quantity = QUANTITIES[name]
        if quantity.unit in ("points", "change"):
            continue  # its two versions explain it
        heading = quantity.heading.removesuffix(", old").removesuffix(", new")
        better = (
            f" {quantity.better.capitalize()} is better." if quantity.better else ""
        )
        terms.setdefault(heading, f"{quantity.formula}.{better}")
    level = level_text(result.level)
    terms[f"{level} interval"] = (
        f"In about {level} of repetitions with other examples (and other runs, where "
        "there are several) such an interval holds the true number. Both versions are "
        "always compared on the same examples."
    )
    if result.labelled:
        terms["Negative and positive flips"] = (
            "Examples that were right and are wrong now, and the reverse. Their rates "
            "differ by the gain in accuracy."
        )
    if result.mcnemar is not None:
        terms["p (exact McNemar test)"] = (
            "How likely as uneven a split into negative and positive flips would be if "
            "both versions were equally accurate. Of several pairs of runs, the median."
        )
    if any(group.adjusted_p == group.adjusted_p for group in result.groups):
        terms["Adjusted p (Holm)"] = (
            "p after correction for testing all groups of a table at once: below 0.05 "
            "for even one group by chance happens in at most 5 % of such tables."
        )
    if result.noise is not None:
        terms["Expected from retraining alone"] = (
            "Mean churn between two runs of the same version."
        )
    if result.points is not None:
        terms["Displacement"] = (
            "Euclidean distance between the old and the new logits of an example, each "
            "centred; of log-probabilities where there are no logits."
        )
    if result.curves is not None:
        terms["Reliability"] = (
            "Accuracy of the predictions made with about the same confidence."
        )
    listed = "".join(
        f"<dt>{escape(term)}</dt><dd>{escape(meaning)}</dd>"
        for term, meaning in terms.items()
    )
    return f"<section><h2>Glossary</h2><dl>{listed}</dl></section>"
