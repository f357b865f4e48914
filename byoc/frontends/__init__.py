"""Front ends: a folder for each kind of model, from what users have to a Relax module.

Each gives an ``Imported``; what compiles, tunes and measures knows no more of a model than that.
There is one so far, so that its functions serve every model.
"""

from byoc.frontends.imported import Imported
from byoc.frontends.onnx import import_model
from byoc.frontends.onnx.given_model import GivenModel, given_model

__all__ = ["GivenModel", "Imported", "given_model", "import_model"]
