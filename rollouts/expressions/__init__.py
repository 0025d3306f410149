"""The condition language of analysis templates: parsed into a small tree, evaluated with types and bounds, no eval.

It is the part of expr (as Argo Rollouts embeds it) that conditions use. Only a boolean outcome counts; everything else,
a wrong type or a missing element included, is an error, which is a verdict of its own and never a pass.
"""

from rollouts.expressions.builtins import EvaluationError
from rollouts.expressions.evaluate import evaluate
from rollouts.expressions.parse import Expression, SyntaxProblem, parse

__all__ = ["EvaluationError", "Expression", "SyntaxProblem", "evaluate", "parse"]
