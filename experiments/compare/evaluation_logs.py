"""How `compare/tests/outcomes/logs/` was made: `python evaluation_logs.py FOLDER`.

inspect_ai 0.3.285 asks a model with given answers six sums, twice; lm_eval 0.4.13 puts
eight questions to its `dummy` model, with two seeds. Both without network.
"""

import json
import subprocess
import sys
from pathlib import Path

import tiktoken
from inspect_ai import Task, eval, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, get_model
from inspect_ai.scorer import includes, match
from inspect_ai.solver import generate

folder = Path(sys.argv[1])


class Words:
    """In place of an encoding that would be downloaded."""

    name = "words"

    def encode(self, text, **_):  # noqa: D102
        return text.split()


tiktoken.get_encoding = lambda name: Words()


@task
def sums():
    samples = [
        Sample(id=f"s{i}", input=f"What is {i} + {i}?", target=str(2 * i))
        for i in range(6)
    ]
    return Task(samples, solver=[generate()], scorer=[match(), includes()], epochs=2)


for name, wrong in (("old", {1, 4}), ("new", {2})):
    said = [str(2 * i) if i not in wrong else "no idea" for i in range(6)] * 2
    outputs = [ModelOutput.from_content("mockllm/model", text) for text in said]
    model = get_model("mockllm/model", custom_outputs=outputs)
    one = {"max_connections": 1, "max_samples": 1, "display": "none"}
    eval(sums(), model=model, log_dir=str(folder / name), log_format="eval", **one)

questions = [{"question": f"{i}+{i}?", "answer": i % 4} for i in range(8)]
(folder / "sums.json").write_text("\n".join(map(json.dumps, questions)))
HARNESS = """\
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
metric_list: [{{metric: {metric}, aggregation: mean, higher_is_better: true}}]
{rest}
"""
for name, metric, rest in (
    ("sums", "acc", "output_type: multiple_choice\ndoc_to_choice: [A, B, C, D]"),
    ("free", "exact_match", "output_type: generate_until"),
):
    text = HARNESS.format(
        name=name, metric=metric, rest=rest, data=folder / "sums.json"
    )
    (folder / f"{name}.yaml").write_text(text)
command = "-m lm_eval --model dummy --tasks sums,free --log_samples".split()
for seed in ("1", "2"):
    words = [*command, "--include_path", str(folder), "--seed", seed]
    words += ["--output_path", str(folder / seed)]
    subprocess.run([sys.executable, *words], check=True)
