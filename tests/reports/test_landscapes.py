"""The image of Figures 4 and 5: written, with every curve, refused where it cannot."""

import pytest

from churn_jax.reports import landscapes
from churn_jax.reports.landscapes import main, save_landscapes


def test_every_curve_is_in_the_image(tmp_path, monkeypatch):
    from matplotlib.axes import Axes

    drawn, original = [], Axes.plot

    def keep(axes, x, y, **style):
        drawn.append((axes.get_subplotspec().colspan.start, style["label"], y))
        return original(axes, x, y, **style)

    monkeypatch.setattr(Axes, "plot", keep)
    path = save_landscapes(tmp_path / "new" / "landscapes.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    counts = [sum(panel == k for panel, _, _ in drawn) for k in range(3)]
    assert counts == [
        *[len(landscapes.ALPHAS)] * 2,
        len(landscapes.TEMPERATURES),
    ]
    assert next(label for panel, label, _ in drawn if panel == 2) == "τ = 0.5"
    # Alpha 1 is the entropy alone, which is 0 where the loss alone is highest.
    first, last = (
        drawn[len(landscapes.ALPHAS)][2],
        drawn[2 * len(landscapes.ALPHAS) - 1][2],
    )
    assert first[0] > 6 and last[0] < 0.02


def test_command_line(tmp_path, capsys):
    out = tmp_path / "a.svg"
    assert main(["--out", str(out)]) == 0
    assert capsys.readouterr().out.strip() == str(out) and out.stat().st_size > 1000
    assert main(["--out", str(tmp_path / "a.txt")]) == 2
    assert "must end in .png" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([])
