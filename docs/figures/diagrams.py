"""Draws the diagrams of the concept pages as SVG: `python docs/figures/diagrams.py`.

Boxes stand in two columns. An arrow's head is at the network that gets the gradient.
"""

import itertools
from pathlib import Path
from xml.sax.saxutils import escape

FOLDER = Path(__file__).parent
INK, SOFT = "#1c1e21", "#5b6168"
# Fill and border: trained now, trained before and frozen, only an output.
KINDS = {
    "trained": ("#e3f0f9", "#0072B2"),
    "frozen": ("#eeeeee", "#8C8C8C"),
    "output": ("#ffffff", "#1c1e21"),
    "good": ("#e2f4ee", "#009E73"),
    "bad": ("#fbeadd", "#D55E00"),
}
WIDTH, MARGIN, BOX, LINE = 480, 16, 150, 17
LEFT, RIGHT = MARGIN, WIDTH - MARGIN - BOX


class Drawing:
    """A picture of boxes and arrows that grows downwards."""

    def __init__(self, title: str, height: int):
        self.title, self.height, self.parts = title, height, []

    def text(self, x, y, words, *, size=13, colour=INK, anchor="middle", weight=400):
        """Lines of text, the first with its baseline at `y`."""
        for n, line in enumerate(words.split("\n")):
            self.parts.append(
                f'<text x="{x}" y="{y + n * LINE}" font-size="{size}" fill="{colour}" '
                f'text-anchor="{anchor}" font-weight="{weight}">{escape(line)}</text>'
            )

    def box(self, x, y, title, below="", kind="trained", width=BOX, height=64):
        """A box with a heading and lines below it; returns its frame."""
        fill, line = KINDS[kind]
        dash = ' stroke-dasharray="5 3"' if kind == "frozen" else ""
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" '
            f'fill="{fill}" stroke="{line}" stroke-width="1.5"{dash}/>'
        )
        lines = 1 + len(below.split("\n")) * bool(below)
        top = y + height / 2 - (lines - 1) * LINE / 2 + 4.5
        self.text(x + width / 2, top, title, weight=600)
        if below:
            self.text(x + width / 2, top + LINE, below, size=12, colour=SOFT)
        return x, y, width, height

    def arrow(self, start, end, label="", *, both=False, kind="trained", at=None):
        """An arrow between two points, with its label in the middle."""
        line = KINDS[kind][1]
        tail = ' marker-start="url(#h)"' if both else ""
        dash = ' stroke-dasharray="4 4"' if kind == "frozen" else ""
        self.parts.append(
            f'<line x1="{start[0]}" y1="{start[1]}" x2="{end[0]}" y2="{end[1]}" '
            f'stroke="{line}" stroke-width="1.8"{dash}{tail} marker-end="url(#h)"/>'
        )
        if label:
            x, y = at or ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2 - 8)
            rows = label.count("\n")
            self.text(x, y - rows * LINE, label, size=12)

    def svg(self) -> str:
        """The file."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} '
            f'{self.height}" width="{WIDTH}" height="{self.height}" role="img" '
            'font-family="Helvetica, Arial, sans-serif">\n'
            f"<title>{escape(self.title)}</title>\n"
            '<defs><marker id="h" markerWidth="9" markerHeight="8" refX="8" refY="4" '
            'orient="auto-start-reverse" markerUnits="userSpaceOnUse">'
            f'<path d="M0 0L9 4L0 8z" fill="{INK}"/></marker></defs>\n'
            f'<rect width="{WIDTH}" height="{self.height}" fill="#fff" rx="6"/>\n'
        )
        return head + "\n".join(self.parts) + "\n</svg>\n"


def right_of(box):
    """The middle of a box's right side."""
    return box[0] + box[2] + 2, box[1] + box[3] / 2


def left_of(box):
    """The middle of a box's left side."""
    return box[0] - 2, box[1] + box[3] / 2


def below(box):
    """The middle of a box's lower side."""
    return box[0] + box[2] / 2, box[1] + box[3] + 2


def above(box):
    """The middle of a box's upper side."""
    return box[0] + box[2] / 2, box[1] - 2


LABELS = "cross_entropy\nwith the labels"


def alone():
    d = Drawing("ERM and MinimumEntropy: a network trains alone", 96)
    d.box(LEFT, 16, "ERM", LABELS)
    more = "cross_entropy +\nentropy, or\nuniform_symmetric_kl"
    d.box(RIGHT - 40, 8, "MinimumEntropy", more, width=BOX + 40, height=80)
    return d


def ensemble():
    d = Drawing("Ensemble: two networks train alone, their mean is served", 176)
    one = d.box(LEFT, 16, "Network 1", LABELS)
    two = d.box(LEFT, 96, "Network 2", LABELS)
    d.box(RIGHT, 56, "Ensemble", "served: the mean", kind="output")
    d.arrow(
        right_of(one), (RIGHT - 4, 80), "probabilities", kind="output", at=(240, 48)
    )
    d.arrow(right_of(two), (RIGHT - 4, 98), kind="output")
    return d


def ensemble_distillation():
    d = Drawing("EnsembleDistillation: a student follows an ensemble", 96)
    old = d.box(LEFT, 16, "Ensemble", "trained before,\nfrozen", "frozen")
    new = d.box(RIGHT, 16, "Student", LABELS)
    d.arrow(right_of(old), left_of(new), "distillation_kl")
    return d


def codistillation():
    d = Drawing("Codistillation: two networks learn from each other", 110)
    one = d.box(LEFT, 16, "Network 1", LABELS)
    two = d.box(RIGHT, 16, "Network 2", LABELS)
    d.arrow(right_of(one), left_of(two), "symmetric_kl", both=True)
    d.text(LEFT + BOX / 2, 100, "served", size=12, colour=SOFT)
    return d


def stale_peers():
    d = Drawing("Codistillation with independent updates against stale copies", 206)
    one = d.box(LEFT, 16, "Network 1", LABELS)
    two = d.box(RIGHT, 16, "Network 2", LABELS)
    of_two = d.box(LEFT, 134, "Copy of 2", "frozen", "frozen", height=56)
    of_one = d.box(RIGHT, 134, "Copy of 1", "frozen", "frozen", height=56)
    d.text(WIDTH / 2, 44, "cross_entropy_between\nalong solid arrows", size=12)
    d.arrow(above(of_two), below(one))
    d.arrow(above(of_one), below(two))
    d.arrow((RIGHT, 78), (LEFT + BOX, 140), kind="frozen")
    d.arrow((LEFT + BOX, 78), (RIGHT, 140), kind="frozen")
    d.text(WIDTH / 2, 160, "copied every\nrefresh_steps", size=12, colour=SOFT)
    return d


def anti_distillation():
    d = Drawing("AntiDistillation: components train apart from each other", 196)
    one = d.box(LEFT, 16, "Component 1", LABELS)
    two = d.box(RIGHT, 16, "Component 2", LABELS)
    label = "correlation_\npenalty: apart"
    d.arrow(right_of(one), left_of(two), label, both=True, kind="bad")
    mean = d.box(
        WIDTH / 2 - 75, 124, "Ensemble", "served: the mean", "output", height=56
    )
    d.arrow((LEFT + 90, 82), (mean[0] + 30, 122), kind="output")
    d.arrow((RIGHT + 60, 82), (mean[0] + 120, 122), kind="output")
    return d


def one_to_one():
    d = Drawing("OneToOneDistillation: each member of a student has a teacher", 222)
    d.parts.append(
        f'<rect x="{RIGHT - 12}" y="10" width="{BOX + 20}" height="164" rx="10" '
        f'fill="none" stroke="{KINDS["trained"][1]}"/>'
    )
    for n, y in (("1", 18), ("2", 102)):
        old = d.box(LEFT, y, f"Teacher {n}", "of a deep ensemble,\nfrozen", "frozen")
        d.box(RIGHT - 2, y, f"Member {n}", LABELS)
        d.arrow(right_of(old), (RIGHT - 6, y + 32), "distillation_kl")
    d.text(RIGHT + 73, 192, "one BatchEnsemble", size=12, colour=SOFT)
    said = "on images moved to where the teachers differ (perturbations.ods)"
    d.text(WIDTH / 2, 214, said, size=12, colour=SOFT)
    return d


def elodi():
    d = Drawing("ELODI: a student has the logits of an ensemble of its kind", 186)
    group = d.box(LEFT, 16, "Ensemble", "of the student's kind,\nfrozen", "frozen")
    old = d.box(LEFT, 106, "Old model", "optional, frozen", "frozen")
    d.box(RIGHT, 60, "Student", LABELS)
    said = "logit_difference_\ninhibition"
    d.arrow(right_of(group), (RIGHT - 2, 84), said, at=(246, 46))
    d.arrow(right_of(old), (RIGHT - 2, 104), said, at=(252, 170))
    return d


def old_models():
    d = Drawing("FocalDistillation, BackwardCompatible, RACT, BayesianUpdate", 276)
    rows = (
        (
            "Old model",
            "frozen",
            "focal_kl or focal_\nlogit_matching",
            "FocalDistillation",
        ),
        (
            "Old last layer",
            "frozen",
            "backward_compatible\nor ract, on features",
            "BackwardCompatible,\nRACT",
        ),
        (
            "Old models",
            "their predictions",
            "bayesian_update_\ntargets",
            "BayesianUpdate",
        ),
    )
    for n, (title, note, loss, method) in enumerate(rows):
        y = 16 + 86 * n
        old = d.box(LEFT, y, title, note, "frozen")
        new = d.box(RIGHT, y, "New model", method)
        d.arrow(right_of(old), left_of(new), loss)
    return d


def program():
    d = Drawing("A program on eight devices: replica x member x data", 330)
    for r in range(2):
        x = MARGIN + r * 228
        d.parts.append(
            f'<rect x="{x}" y="34" width="220" height="230" rx="10" fill="#f6f7f9" '
            f'stroke="{SOFT}"/>'
        )
        first = 5 * r
        d.text(x + 110, 24, f"replicas {first} to {first + 4}", weight=600)
        for m in range(2):
            y = 46 + m * 108
            d.parts.append(
                f'<rect x="{x + 10}" y="{y}" width="200" height="100" rx="8" '
                f'fill="#e3f0f9" stroke="{KINDS["trained"][1]}"/>'
            )
            d.text(x + 110, y + 19, f"member {m}", size=12)
            for s in range(2):
                name = f"device {4 * r + 2 * m + s}"
                where = x + 18 + s * 98
                d.box(where, y + 28, name, f"batch, half {s}", "output", 86, 62)
    d.text(
        WIDTH / 2,
        286,
        "data: gradients are summed.   member: logits are exchanged.",
        size=13,
    )
    d.text(WIDTH / 2, 306, "replica: nothing is exchanged; runs never meet.", size=13)
    return d


def update():
    d = Drawing("The life of a model update", 470)
    steps = (
        ("Train the new version", "several seeds: churn-jax study", "trained"),
        (
            "Measure the noise floor",
            "churn of the same version, trained again",
            "trained",
        ),
        ("Compare old and new", "churn-jax compare: flips, slices", "trained"),
        ("Gate", "limits on flips and accuracy; exit code", "output"),
    )
    boxes = []
    for n, (title, note, kind) in enumerate(steps):
        boxes.append(d.box(80, 14 + 92 * n, title, note, kind, width=320))
    for one, other in itertools.pairwise(boxes):
        d.arrow(below(one), above(other), kind="output")
    d.box(LEFT, 394, "Ship", "it is the old version now", "good", width=200)
    d.box(
        WIDTH - MARGIN - 200,
        394,
        "Mitigate",
        "ELODI, co-distillation, ...",
        "bad",
        width=200,
    )
    d.arrow((150, 356), (150, 392), "holds", kind="good", at=(122, 380))
    d.arrow((330, 356), (330, 392), "fails", kind="bad", at=(356, 380))
    x = WIDTH - MARGIN - 20
    d.parts.append(
        f'<path d="M{x} 392V46H402" fill="none" stroke="{KINDS["bad"][1]}" '
        'stroke-width="1.8" marker-end="url(#h)"/>'
    )
    y = KINDS["good"][1]
    d.parts.append(
        f'<path d="M36 392V46H78" fill="none" stroke="{y}" '
        'stroke-width="1.8" marker-end="url(#h)"/>'
    )
    return d


DIAGRAMS = (
    alone,
    ensemble,
    ensemble_distillation,
    codistillation,
    stale_peers,
    anti_distillation,
    one_to_one,
    elodi,
    old_models,
    program,
    update,
)


if __name__ == "__main__":
    for draw in DIAGRAMS:
        (FOLDER / f"{draw.__name__}.svg").write_text(draw().svg())
