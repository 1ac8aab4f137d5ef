"""Makes `weights.npz`: python -m guard.inputs.classifier.training --injection FILE --dialogues FILE

Needs scikit-learn, which nothing else does. The same data make the same weights. What is not given is skipped with a
word; `data.toml` lists all of it with hashes. The margins of a flag and of a block come from what is seen out of fold.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from guard.inputs.classifier.features import BUCKETS, buckets
from guard.inputs.classifier.model import PATH, Model
from guard.inputs.normalising import Layers, layers_of

SETS = Path(__file__).parents[1] / "evaluation" / "sets"
FOLDS, INNER = 10, 5
COST = 1.0
DIALOGUES_WEIGHT = 0.5  # there are many of them, much alike
# The share of ordinary texts that a source may have over the margin of a flag: a single text of it, or none.
MAY_FLAG = {"injection": 0.0075, "own": 0.01, "dialogues": 0.0002}
ABOVE = 0.1  # how far over the last ordinary text the margin of a block lies
APART = 0.4  # the least between a flag and a block

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Text(NamedTuple):
    """group: texts of one group are in one fold, for they are made of one sentence or are of one conversation."""

    text: str
    attack: bool
    source: str
    kind: str
    group: str


@dataclass
class Learnt:
    weights: Floats
    bias: float


def _say(words: str) -> None:
    sys.stderr.write(words + "\n")


def read(options: dict[str, Path | None], say: Callable[[str], object] = _say) -> list[Text]:
    """Everything to learn from. Raises ValueError where a file is not the one that `data.toml` names."""
    texts: list[Text] = []
    for entry in tomllib.loads(Path(__file__).with_name("data.toml").read_text(encoding="utf-8"))["data"]:
        path = SETS / entry["set"] if "set" in entry else options.get(entry["option"])
        if path is None or not path.exists():
            say(f"skipped: {entry['what']}; give its file by --{entry['option']}")
            continue
        raw = path.read_bytes()
        if hashlib.sha256(raw).hexdigest() != entry["sha256"]:
            raise ValueError(f"{path} is not the file that data.toml names: its SHA-256 differs")
        rows = [json.loads(line) for line in raw.splitlines()]
        texts += _texts(rows, entry.get("option", "own"))
    return texts


def _texts(rows: list[dict[str, Any]], source: str) -> Iterable[Text]:
    if source == "dialogues":
        return [
            Text(message["content"], False, source, "dialogue", row["dialogue_id"])
            for row in rows for message in row["messages"] if message["role"] == "user"
        ]  # fmt: skip
    if source == "injection":
        return [Text(row["text"], row["label"] == "injection", source, row["source"], row["text"]) for row in rows]
    kept = [row for row in rows if not row["held_out"]]
    short = sorted({row["text"] for row in kept}, key=len)
    # a combination holds its sentence
    groups = {row["text"]: next(one for one in short if one in row["text"]) for row in kept}
    return [Text(row["text"], row["label"] == "attack", source, row["kind"], groups[row["text"]]) for row in kept]


def matrix(all_layers: list[Layers]) -> Any:
    """One row a text: the n-grams of its plainest layer, counted, over the root of its length."""
    from scipy.sparse import csr_matrix

    rows, columns, values = [], [], []
    for row, layers in enumerate(all_layers):
        codes = max(layers.layers, key=lambda layer: len(layer.kinds)).together.codes
        found, counts = np.unique(np.concatenate([np.zeros(0, np.int64), *buckets(codes)]), return_counts=True)
        rows.append(np.full(len(found), row))
        columns.append(found)
        values.append(counts / np.sqrt(max(1, len(codes))))
    shape = (len(all_layers), BUCKETS)
    return csr_matrix((np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape=shape)


def fit(features: Any, attack: npt.NDArray[np.bool_], weights: Floats) -> Learnt:
    from sklearn.svm import LinearSVC

    learnt = LinearSVC(C=COST, class_weight="balanced", random_state=0, max_iter=3000)
    learnt.fit(features, attack, sample_weight=weights)
    # as they are stored
    return Learnt(learnt.coef_[0].astype(np.float16).astype(np.float64), float(learnt.intercept_[0]))


def folds(texts: list[Text], count: int) -> Ints:
    """The fold of each text, from the hash of its group."""
    digests = [hashlib.sha256(f"{count} {text.group}".encode()).digest() for text in texts]
    return np.array([int.from_bytes(digest[:4]) % count for digest in digests])


@dataclass
class Data:
    """All texts with their layers and features, computed once."""

    texts: list[Text]

    def __post_init__(self) -> None:
        self.layers = [layers_of(text.text) for text in self.texts]
        self.features = matrix(self.layers)
        self.attack = np.array([text.attack for text in self.texts])
        self.source = np.array([text.source for text in self.texts])
        self.weights = np.where(self.source == "dialogues", DIALOGUES_WEIGHT, 1.0)

    def fitted(self, rows: Ints) -> Learnt:
        # every fourth turn of a dialogue says as much as all of them
        kept = rows[(self.source[rows] != "dialogues") | (rows % 4 == 0)]
        return fit(self.features[kept], self.attack[kept], self.weights[kept])

    def margins(self, learnt: Learnt, rows: Ints) -> tuple[Floats, Ints]:
        """As the model in force would judge them: the likeliest window, and whether it is Chinese."""
        model = Model(learnt.weights.astype(np.float32), learnt.bias, np.zeros(2), np.ones(2))
        margins, chinese = np.full(len(rows), -9.0), np.zeros(len(rows), dtype=np.int64)
        for at, row in enumerate(rows):
            for layer in self.layers[row].layers:
                windows = model.windows(layer.together)
                best = int(windows.margins.argmax())
                if windows.margins[best] > margins[at]:
                    margins[at], chinese[at] = windows.margins[best], windows.chinese[best]
        return margins, chinese

    def out_of_fold(self, rows: Ints, count: int) -> tuple[Floats, Ints]:
        """The margin of each of some rows by weights that were learnt without its fold."""
        fold = folds([self.texts[row] for row in rows], count)
        margins, chinese = np.zeros(len(rows)), np.zeros(len(rows), dtype=np.int64)
        for number in range(count):
            learnt = self.fitted(rows[fold != number])
            margins[fold == number], chinese[fold == number] = self.margins(learnt, rows[fold == number])
        return margins, chinese

    def thresholds(self, rows: Ints, margins: Floats, chinese: Ints) -> tuple[Floats, Floats]:
        """The margins of a flag and of a block, for other scripts and for Chinese."""
        flag, block = np.zeros(2), np.zeros(2)
        for script in (0, 1):
            least, most = [0.0], [0.0]
            for source, share in MAY_FLAG.items():
                own = margins[(self.source[rows] == source) & ~self.attack[rows] & (chinese == script)]
                if len(own):
                    least.append(float(np.sort(own)[::-1][min(len(own) - 1, int(share * len(own)))]) + 1e-6)
                    most.append(float(own.max()) + ABOVE)
            flag[script] = max(least)
            block[script] = max(flag[script] + APART, *most)
        return flag, block


def made(data: Data) -> Model:
    """The weights from all of it, its margins from what was seen out of fold."""
    from sklearn.linear_model import LogisticRegression

    rows = np.arange(len(data.texts))
    margins, chinese = data.out_of_fold(rows, INNER)
    flag, block = data.thresholds(rows, margins, chinese)
    platt = LogisticRegression(C=1e6).fit(margins[:, None], data.attack)
    learnt = data.fitted(rows)
    return Model(
        learnt.weights.astype(np.float32), learnt.bias, flag, block,
        float(platt.coef_[0, 0]), float(platt.intercept_[0]),
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--injection", type=Path, help="deepset's and NotInject's prompts, JSONL")
    parser.add_argument("--dialogues", type=Path, help="conversations, JSONL")
    parser.add_argument("--out", type=Path, default=PATH)
    options = parser.parse_args()
    data = Data(read({"injection": options.injection, "dialogues": options.dialogues}))
    model = made(data)
    np.savez_compressed(
        options.out, weights=model.weights.astype(np.float16), bias=model.bias, flag=model.flag, block=model.block,
        slope=model.slope, offset=model.offset,
    )  # fmt: skip
    sys.stdout.write(
        f"{options.out}: {len(data.texts)} texts, {int(data.attack.sum())} attacks, "
        f"{options.out.stat().st_size} bytes; "
        f"margins of a flag {model.flag.round(2)}, of a block {model.block.round(2)}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
