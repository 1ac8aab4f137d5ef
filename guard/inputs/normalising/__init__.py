"""What a text is when its disguises are off, with the way back to where each character stood.

`layers_of(text)` gives the text and whatever is coded in it as folded `View`s; `views` has other ways to see one.
"""

from guard.inputs.normalising.layers import Layer, Layers, layers_of
from guard.inputs.normalising.view import View, folded, lowered, tables
from guard.inputs.normalising.views import digits, joined, mirrored, rotated, unleeted

__all__ = [
    "Layer", "Layers", "View", "digits", "folded", "joined", "layers_of", "lowered", "mirrored", "rotated", "tables",
    "unleeted",
]  # fmt: skip
