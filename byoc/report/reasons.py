"""Why calls stay with TVM."""

from tvm import relax

#: A reason for each call that stays, by the variable that it is bound to.
Reasons = dict[relax.Var, str]


class Chosen(str):
    """A reason that a user gave, or that the work is too little: nothing is missed by it."""
