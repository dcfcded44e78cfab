"""Rewrites the golden logits of public models; review the difference before committing.

.venv-oracles/bin/python -m tests.oracles.refresh
"""

import json

import numpy as np

from tests.models import drawn, public_networks
from tests.oracles import public


def record(name):
    """What our network has to reproduce, from the torch model alone."""
    model = public.build(name, public_networks.CLASSES).eval()
    shapes = public.shapes(model)
    public.load(model, drawn.weights(shapes))
    logits = public.logits(model, drawn.images()).astype(np.float64)
    return {
        "versions": public.versions(),
        "parameters": public.parameters(public.build(name, 1000)),
        "weights": drawn.fingerprint(shapes),
        "logits": logits.round(6).tolist(),
    }


def main():
    for name in public_networks.NETWORKS:
        text = json.dumps(record(name), indent=1) + "\n"
        public_networks.path_of(name).write_text(text)


if __name__ == "__main__":
    main()
