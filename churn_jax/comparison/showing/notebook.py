"""What a notebook shows of a comparison."""

from churn_jax.comparison.result import CompareResult
from churn_jax.comparison.showing.page_tables import update_table, versions_table
from churn_jax.comparison.showing.verdict import gate_sentence, sentences
from churn_jax.escaping import escape

# Colours of the surrounding notebook, light or dark; only lines have their own.
STYLE = """
.churn-jax p{margin:.3em 0}.churn-jax li{list-style:none;padding-left:.6em;
margin:.2em 0;border-left:5px solid #009e73}.churn-jax ul{padding:0;margin:.4em 0}
.churn-jax li.bad{border-color:#d55e00}
.churn-jax table{border-collapse:collapse;color:inherit;margin:.6em 0}
.churn-jax th,.churn-jax td{padding:.25em .6em;text-align:right;background:none;
border:0;border-bottom:1px solid rgba(128,128,128,.4);vertical-align:top}
.churn-jax td{white-space:nowrap}.churn-jax .numbers td:last-child{white-space:normal}
.churn-jax tr{background:none}.churn-jax tr>:first-child{text-align:left}
.churn-jax .numbers tr>:last-child{text-align:left}
.churn-jax caption{text-align:left;opacity:.75}
.churn-jax small{display:block;opacity:.75;font-weight:400}
"""


def notebook_html(result: CompareResult) -> str:
    """The verdict, the gates and the numbers; figures and groups are on the page."""
    title = f"{result.old.name} → {result.new.name}"
    parts = [f"<style>{STYLE}</style>", f"<p><strong>{escape(title)}</strong></p>"]
    if result.gates:
        parts.append(f"<p><strong>{escape(gate_sentence(result))}</strong></p><ul>")
        for outcome in result.gates:
            kind, word = ("good", "PASS") if outcome.passed else ("bad", "FAIL")
            line = outcome.line.removeprefix(word).strip()
            parts.append(f'<li class="{kind}"><b>{word}</b> {escape(line)}</li>')
        parts.append("</ul>")
    parts += [f"<p>{escape(text)}</p>" for text in (*sentences(result), *result.notes)]
    parts += [versions_table(result), update_table(result)]
    return '<div class="churn-jax">' + "\n".join(filter(None, parts)) + "</div>"
