"""Lists the mutants that cosmic-ray can make of a file, and draws some."""

import ast
import random
import re
import warnings
from collections import Counter
from typing import NamedTuple

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

# What no test should notice: types (`|` is hardly anything else), logs, `is` for `==`.
SILLY_OPERATOR = re.compile(r"_BitOr_|_(?:Eq_Is|Is_Eq|NotEq_IsNot|IsNot_NotEq)$")
SILLY_LINE = re.compile(r"# pragma|^@dataclass|^@override|\b_?log(?:ger)?\.|TYPE_CHECKING")
DULL_LEAVES = {
    "name",
    "newline",
    "string",
    "endmarker",
    "fstring_string",
}  # nothing is made of them


class Mutant(NamedTuple):
    """The operator at the so-manieth place of the file where it fits; `text` is the line there."""

    file: str
    operator: str
    occurrence: int
    line: int
    column: int
    text: str

    def apply(self, source):
        return mutate_code(source, get_operator(self.operator)(), self.occurrence)


def list_mutants(file, source):
    lines = source.split("\n")
    nodes = [node for node in ast_nodes(get_ast(source)) if node.type not in DULL_LEAVES]
    for name in sorted(operator_names()):
        operator = get_operator(name)
        if operator.arguments() or SILLY_OPERATOR.search(name):
            continue
        places = (place for node in nodes for place in operator().mutation_positions(node))
        for occurrence, (start, _) in enumerate(places):
            text = lines[start[0] - 1].strip()
            if not SILLY_LINE.search(text):
                yield Mutant(file, name, occurrence, *start, text)


def is_other(mutant, source):
    """Whether it is a program, and not the same one."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.dump(ast.parse(mutant.apply(source))) != ast.dump(ast.parse(source))
    except (SyntaxError, AttributeError):  # the latter from cosmic-ray, at `except (a.B, C)`
        return False


def draw(mutants, sources, count, seed):
    """So many; a place is taken twice only when each was taken once."""
    taken, turns = Counter(), []
    for mutant in random.Random(seed).sample(mutants, len(mutants)):
        place = (mutant.file, mutant.line, mutant.column)
        turns.append((taken[place], len(turns), mutant))
        taken[place] += 1
    ranked = (mutant for *_, mutant in sorted(turns))
    found = (mutant for mutant in ranked if is_other(mutant, sources[mutant.file]))
    return [mutant for mutant, _ in zip(found, range(count), strict=False)]
