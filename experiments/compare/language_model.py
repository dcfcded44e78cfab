"""Answers of small language models, as JSON lines.

python experiments/compare/language_model.py ag_news_tokens.npz answers
churn-jax compare answers/old.jsonl answers/new.jsonl --by topic

A recurrent network learns to continue news that end in a sentence on their topic. It
then gets 500 texts it has not seen, and names their topics five times. `old` and `new`
have learnt from other seeds. `bfloat16` is `old` in half precision, with draws of its
own; `batch_50` answers 50 texts at a time in place of 500, with the draws of `old`.
"""

import argparse
import functools
import json
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from churn_jax import data

LENGTH, VOCABULARY, WIDTH, STEPS, BATCH = 24, 3000, 128, 300, 64
TEXTS, SAMPLES, TEMPERATURE = 500, 5, 0.7
TOPICS = ("world news", "sports", "business", "science and technology")
WORDS = ("topic", *dict.fromkeys(" ".join(TOPICS).split()), ".")  # after VOCABULARY
LONGEST = 1 + max(len(topic.split()) for topic in TOPICS)


class LanguageModel(nn.Module):
    """Logits of the token after each of `[B, L]`, or after the last ones."""

    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, tokens, last=LENGTH + LONGEST):  # noqa: D102
        of, size = {"dtype": self.dtype}, VOCABULARY + len(WORDS)
        words = nn.Embed(size, WIDTH, **of)(tokens)
        place = jnp.arange(1, tokens.shape[1] + 1, dtype=self.dtype)[None, :, None]
        so_far = jnp.cumsum(words, axis=1) / place  # the mean of all words
        hidden = nn.RNN(nn.GRUCell(WIDTH, **of))(words) + nn.Dense(WIDTH, **of)(so_far)
        return nn.Dense(size, **of)(hidden[:, -last:]).astype(jnp.float32)


def tokens_of(text):
    """Words that the news' own vocabulary lacks, with 0 up to the longest."""
    found = [VOCABULARY + WORDS.index(word) for word in text.split()]
    return found + [0] * (1 + LONGEST - len(found))


def trained(texts, seed):
    """Parameters after `STEPS` steps on random texts `[N, L]`."""
    model, optimizer = LanguageModel(), optax.adam(5e-3)

    @jax.jit
    def step(params, state, tokens):
        def loss(params):
            logits, labels = model.apply(params, tokens[:, :-1]), tokens[:, 1:]
            each = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
            return each.mean(where=labels > 0)

        updates, state = optimizer.update(jax.grad(loss)(params), state)
        return optax.apply_updates(params, updates), state

    params = model.init(jax.random.key(seed), texts[:1])
    state, rng = optimizer.init(params), np.random.default_rng(seed)
    for _ in range(STEPS):
        chosen = rng.integers(len(texts), size=BATCH)
        params, state = step(params, state, texts[chosen])
    return params


def answers(params, prompts, dtype, batch, seed):
    """The model's answers to the prompts `[N, L]`, `SAMPLES` for each."""

    @functools.partial(jax.jit, static_argnames="place")
    def draw(tokens, keys, place):
        logits = LanguageModel(dtype).apply(params, tokens, last=1)[:, 0]
        keys = jax.vmap(jax.random.fold_in, (0, None))(keys, place)
        return jax.vmap(jax.random.categorical)(keys, logits / TEMPERATURE)

    prompts = np.repeat(prompts, SAMPLES, axis=0)
    keys, batch = jax.random.split(jax.random.key(seed), len(prompts)), batch * SAMPLES
    for first in range(0, len(prompts), batch):
        tokens = prompts[first : first + batch]
        for place in range(LONGEST):
            drawn = draw(tokens, keys[first : first + batch], place)
            tokens = np.concatenate([tokens, drawn[:, None]], axis=1)
        for said in tokens[:, -LONGEST:] - VOCABULARY:
            words = [WORDS[i] if i >= 0 else f"word {i + VOCABULARY}" for i in said]
            yield " ".join(words).partition(" .")[0]


def write_answers(source, folder):
    """A line per text and sample in each of four files."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    options = data.TextOptions(LENGTH, VOCABULARY)
    news = data.load(source, text=options, validation=0)
    said = np.array([tokens_of(f"topic {topic} .") for topic in TOPICS])
    texts = np.concatenate([news.train.images, said[news.train.labels]], axis=1)
    old, new = (trained(texts, seed) for seed in (0, 1))
    chosen = np.random.default_rng(0).permutation(len(news.test))[:TEXTS]
    test, topics = news.test.images[chosen], news.test.labels[chosen]
    prompts = np.concatenate([test, np.full((TEXTS, 1), VOCABULARY)], axis=1)
    for name, *settings in (
        ("old", old, prompts, jnp.float32, TEXTS, 0),
        ("new", new, prompts, jnp.float32, TEXTS, 1),
        ("bfloat16", old, prompts, jnp.bfloat16, TEXTS, 2),
        ("batch_50", old, prompts, jnp.float32, 50, 0),
    ):
        with open(folder / f"{name}.jsonl", "w") as file:
            for place, answer in enumerate(answers(*settings)):
                i, sample = divmod(place, SAMPLES)
                record = {"id": str(news.test.ids[chosen[i]]), "sample": sample}
                record["topic"] = record["target"] = TOPICS[topics[i]]
                record |= {"input": " ".join(map(str, test[i])), "answer": answer}
                file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", help="texts of four classes of news, as token ids")
    parser.add_argument("folder", help="of the files to write")
    write_answers(**vars(parser.parse_args()))
