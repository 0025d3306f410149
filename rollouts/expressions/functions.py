"""The functions of the language: how many arguments each takes. Closures get their second argument unevaluated."""

CLOSURES = frozenset({"all", "none", "any", "one", "filter", "map", "count", "find", "reduce", "sum"})

# Name: least and most arguments.
NAMES: dict[str, tuple[int, int]] = {
    "all": (2, 2), "none": (2, 2), "any": (2, 2), "one": (2, 2), "filter": (2, 2), "map": (2, 2), "find": (2, 2),
    "count": (1, 2), "reduce": (2, 3), "sum": (1, 2),
    "len": (1, 1), "first": (1, 1), "last": (1, 1), "mean": (1, 8), "median": (1, 8), "min": (1, 8), "max": (1, 8),
    "abs": (1, 1), "ceil": (1, 1), "floor": (1, 1), "round": (1, 1), "int": (1, 1), "float": (1, 1),
    "string": (1, 1), "lower": (1, 1), "upper": (1, 1), "trim": (1, 1),
    "asInt": (1, 1), "asFloat": (1, 1), "isNaN": (1, 1), "isInf": (1, 1), "isNil": (1, 1), "default": (2, 2),
}  # fmt: skip
