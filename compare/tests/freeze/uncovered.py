"""Which lines of the package no comparison runs."""

from pathlib import Path


def write_uncovered(checkout: Path, file: Path) -> int:
    """Runs every comparison under coverage; writes the lines that never ran."""
    import coverage

    from tests.freeze.__main__ import use

    package = (checkout / "compare" / "churn_compare").resolve()
    measured = coverage.Coverage(source=[str(package)], data_file=None)
    measured.start()
    use(checkout.resolve())
    from tests.freeze.cases import CASES
    from tests.freeze.session import produce

    produce(CASES)
    measured.stop()
    lines, total, missed = [], 0, 0
    for path in sorted(package.rglob("*.py")):
        _, statements, _, missing, shown = measured.analysis2(str(path))
        total, missed = total + len(statements), missed + len(missing)
        if missing:
            source = path.read_text().splitlines()
            lines.append(f"{path.relative_to(package)}: {shown}")
            lines += [
                f"    {number}: {source[number - 1].strip()}" for number in missing
            ]
    share = 100 * (total - missed) / total
    head = f"{missed} of {total} statements never run ({share:.1f} % run)"
    file.write_text("\n".join([head, *lines]) + "\n")
    print(head)
    return 0
