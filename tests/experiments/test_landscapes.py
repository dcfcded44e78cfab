"""The image of Figures 4 and 5: written, with every curve, refused where it cannot."""

from experiments.reproducibility.landscapes import ALPHAS, TEMPERATURES, main


def test_every_curve_is_in_the_image(tmp_path, drawn, capsys):
    out = tmp_path / "new" / "landscapes.png"
    assert main(["--out", str(out)]) == 0
    assert capsys.readouterr().out.strip() == str(out)
    assert out.read_bytes().startswith(b"\x89PNG")
    labels = [style["label"] for _, style in drawn["plot"]]
    alphas = [f"α = {alpha:g}" for alpha in ALPHAS]
    assert labels == [*alphas, *alphas, *(f"τ = {tau:g}" for tau in TEMPERATURES)]
    # Alpha 1 is the entropy alone, which is 0 where the loss alone is highest.
    first, last = (drawn["plot"][i][0][1] for i in (len(ALPHAS), 2 * len(ALPHAS) - 1))
    assert first[0] > 6 and last[0] < 0.02
    assert main(["--out", str(tmp_path / "a.txt")]) == 2
    assert "must end in .png" in capsys.readouterr().err
