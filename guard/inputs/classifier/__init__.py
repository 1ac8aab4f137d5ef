"""A linear classifier over hashed character n-grams: what rules do not name. `training` makes its weights."""

from guard.inputs.classifier.model import RULE, Model, Scored, model, score

__all__ = ["RULE", "Model", "Scored", "model", "score"]
