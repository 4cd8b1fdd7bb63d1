"""One checkpoint whose weights are the mean of several's, as fast as each and often better than any.

After Wortsman et al. 2022, "Model soups: averaging weights of multiple fine-tuned models improves accuracy without
increasing inference time". It needs checkpoints that were trained from the same one.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from models.checkpoint import WEIGHTS


def average(checkpoints: Sequence[Path], out: Path) -> None:
    """Write the mean of Hugging Face checkpoints, with the configuration and the tokenizer of the first.

    Raises ValueError for checkpoints whose weights differ in name or shape.
    """
    states = [load_file(checkpoint / WEIGHTS) for checkpoint in checkpoints]
    shapes = [{name: weight.shape for name, weight in state.items()} for state in states]
    for checkpoint, shape in zip(checkpoints, shapes, strict=True):
        if shape != shapes[0]:
            raise ValueError(f"{checkpoint} and {checkpoints[0]} have other weights, or in another shape")
    mean = {name: np.mean([state[name] for state in states], axis=0, dtype=np.float64) for name in states[0]}
    shutil.copytree(checkpoints[0], out, dirs_exist_ok=True, ignore=shutil.ignore_patterns("training.json"))
    kept = {name: weight.astype(states[0][name].dtype) for name, weight in mean.items()}
    save_file(kept, out / WEIGHTS, metadata={"format": "pt"})
