"""The shape of the source: folders and their imports, names that mean several things, what is written twice, sizes.

python scripts/map.py            # the working tree
python scripts/map.py 663dfec    # and a commit beside it
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

SOURCE = "src/recollect/"
ROOT = Path(__file__).parents[1]
Files = dict[str, str]  # path below SOURCE → text
ENDINGS = (".py", ".cpp", ".h")
Edges = dict[str, set[str]]

EXAMPLES = {  # one built-in of each kind: the Python files of the package that know its name
    "agent (search_r1)": r"\bsearch_r1\b",
    "estimator (rloo)": r"\brloo\b",
    "domain (tau)": r"\btau\b|\bTAU\b",
    "tracker (swanlab)": r"\bswanlab\b|\bSwanlab\b",
    "tool (list_files)": r"\blist_files\b",
}
TWICE = {  # what is worth writing once, and how it is recognised
    "BM25 (an inverse document frequency)": r"math\.log\(.*\bdf\b|np\.log\d*p?\(.*(df|documents|count)|\bidf\b|rarity",
    "a test for http addresses": r"startswith\(\(?\"http|URLS\b.*=|\"https://\"",
    "the rule of trainer.val_only without tasks": r"val_only=[Tt]rue, but",
    "a rule about a critic on the actor's body": r"share_actor=T",
    "a parser of <tool_call>": r"(?m)^_OPEN.*<tool_call>|re\.compile\(r\"<tool_call>",
    "the keys of stored trajectories": r"\"prompt_ids\"",
}
SPEED = (  # files that only make things faster: kernels, C++, CUDA graphs and what serves them
    r"(^|/)(cuda|native)/|^engine/cpu/|\.(cpp|h)$|/(flash|dense|merge)(_attention)?\.py$|/compiled\.py$"
    r"|^policies/engine/(kernel|decode)\.py$"
)
CORE = r"^(engine|policies/engine|samplers|packing|algos|models|train|training)/"  # the rest here is the core
TYPES = ast.Subscript | ast.BinOp | ast.Name | ast.Attribute  # how a type alias is written
WORDS = (r"\bprefill", r"\brope\b", r"\bidf\b", r"\bKV cache\b|key-value cache", r"\bmicro.batch")


def working_tree() -> Files:
    """The files as they are."""
    folder = ROOT / SOURCE
    return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*")) if p.suffix in ENDINGS}


def of_commit(name: str) -> Files:
    """The files of a commit."""
    git = lambda *words: subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [p for p in git("ls-tree", "-r", "--name-only", name, SOURCE).split() if p.endswith(ENDINGS)]
    return {p.removeprefix(SOURCE): git("show", f"{name}:{p}") for p in paths}


@cache
def parsed(text: str) -> ast.Module:
    """A file's tree; many figures need it."""
    return ast.parse(text)


def module_of(path: str) -> str:
    """The dotted name of a file, without the package's own."""
    return path.removesuffix(".py").removesuffix("/__init__").removesuffix("__init__").replace("/", ".")


def folder_of(module: str) -> str:
    """The first part of a module's name: a folder, or a module at the top."""
    return module.partition(".")[0]


def imports(node: ast.AST, inside: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """Every import but those for type checkers, and whether a function does it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):  # nothing in there is a statement
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, inside
        yield from imports(child, inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))


def names_of(node: ast.AST, modules: set[str]) -> Iterator[str]:
    """The package's modules that an import names."""
    if isinstance(node, ast.Import):
        yield from (a.name.removeprefix("recollect.") for a in node.names if a.name.startswith("recollect."))
    elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "recollect":
        place = (node.module or "").removeprefix("recollect").removeprefix(".")
        for alias in node.names:
            below = f"{place}.{alias.name}" if place else alias.name
            yield below if below in modules else place


def graph(files: Files, functions: bool) -> tuple[Edges, int]:
    """Which folder imports from which, and how many imports of the package are inside functions."""
    modules = {module_of(p) for p in files}
    edges: Edges = defaultdict(set)
    hidden = 0
    for path, text in files.items():
        here = folder_of(module_of(path))
        for node, inside in imports(parsed(text)):
            found = [name for name in names_of(node, modules) if name]
            hidden += bool(inside and found)
            if functions or not inside:
                edges[here] |= {folder_of(name) for name in found} - {here}
    return edges, hidden


def cycle(edges: Edges) -> list[str]:
    """The largest set of folders that all reach each other."""

    def reached(start: str) -> set[str]:
        seen, queue = set[str](), [start]
        while queue:
            for name in edges.get(queue.pop(), ()):
                if name not in seen:
                    seen.add(name)
                    queue.append(name)
        return seen

    reach = {name: reached(name) for name in edges}
    groups = ([b for b in reach if b in reach[a] and a in reach[b]] for a in reach)
    return max(groups, key=len, default=[])


def recurring(names: list[str]) -> list[str]:
    """Names that are there several times, most frequent first."""
    return [f"{name} ×{n}" for name, n in Counter(names).most_common() if n > 1]


def classes(files: Files) -> list[str]:
    """Every class of the package."""
    return [n.name for text in files.values() for n in ast.walk(parsed(text)) if isinstance(n, ast.ClassDef)]


def aliases(files: Files) -> list[str]:
    """Every type that a module names, such as ``Row = dict[str, Any]``, also where only type checkers read it."""
    modules = [parsed(text) for text in files.values()]
    bodies = [tree.body + [n for part in tree.body if isinstance(part, ast.If) for n in part.body] for tree in modules]
    found = (n for body in bodies for n in body if isinstance(n, ast.Assign) and isinstance(n.value, TYPES))
    names = [target.id for n in found for target in n.targets if isinstance(target, ast.Name)]
    return [name for name in names if re.fullmatch(r"[A-Z][a-z]\w*", name)]


def speed(files: Files) -> str:
    """Lines of speed code, of them C++, against those of the core."""
    size = lambda fits: sum(len(text.splitlines()) for path, text in files.items() if fits(path))
    fast, native = size(lambda p: re.search(SPEED, p)), size(lambda p: not p.endswith(".py"))
    return f"{fast:,} (C++ {native:,}) against {size(lambda p: re.match(CORE, p) and not re.search(SPEED, p)):,}"


def functions(files: Files) -> list[int]:
    """The lines of every function."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    found = (n for text in files.values() for n in ast.walk(parsed(text)) if isinstance(n, kinds))
    return [(n.end_lineno or n.lineno) - n.lineno + 1 for n in found]


def matching(files: Files, pattern: str) -> list[str]:
    """The files in which a pattern occurs."""
    return [path for path, text in files.items() if re.search(pattern, text)]


def figures(everything: Files) -> dict[str, str]:
    """What is measured → the figure."""
    files = {path: text for path, text in everything.items() if path.endswith(".py")}
    open_edges, hidden = graph(files, functions=False)
    all_edges, _ = graph(files, functions=True)
    top = {p.partition("/")[0] for p in files if not p.startswith("__")}
    file_names = [Path(p).name for p in files if not p.endswith("__init__.py")]
    lengths = functions(files)
    lines = Counter[str]()
    for path, text in files.items():
        lines[folder_of(module_of(path))] += len(text.splitlines())
    biggest = ", ".join(f"{name} {n:,}" for name, n in lines.most_common(6))
    found = {
        "folders in one import cycle, imports at module level": str(len(cycle(open_edges))),
        "the same with imports inside functions": str(len(cycle(all_edges))),
        "imports of the package inside functions": str(hidden),
        "top level: modules + folders": f"{sum(t.endswith('.py') for t in top)} + {sum('.' not in t for t in top)}",
        "file names that recur": _listed(recurring(file_names)),
        "names of classes and type aliases that recur": _listed(recurring(classes(files) + aliases(files))),
        "lines": f"{sum(lines.values()):,}; {biggest}",
        "lines of speed code against core": speed(everything),
        "longest file, longest function, mean function": (
            f"{max(len(t.splitlines()) for t in files.values())}, {max(lengths)}, {sum(lengths) / len(lengths):.1f}"
        ),
    }
    found |= {f"files that know the {kind}": _counted(matching(files, p)) for kind, p in EXAMPLES.items()}
    found |= {f"files with {what}": _counted(matching(files, p)) for what, p in TWICE.items()}
    found |= {f"“{word}”": str(sum(len(re.findall(word, t)) for t in files.values())) for word in WORDS}
    return found


def _listed(names: list[str]) -> str:
    return f"{len(names)}" + (f" ({', '.join(names[:6])}{', …' if len(names) > 6 else ''})" if names else "")


def _counted(paths: list[str]) -> str:
    return f"{len(paths)}" + (f" ({', '.join(paths)})" if 0 < len(paths) <= 3 else "")


def table(columns: dict[str, dict[str, str]]) -> str:
    """Figures side by side, in Markdown."""
    rows = [f"| {' | '.join(['', *columns])} |", f"|{'---|' * (len(columns) + 1)}"]
    for key in next(iter(columns.values())):
        rows.append(f"| {' | '.join([key, *(column[key] for column in columns.values())])} |")
    return "\n".join(rows)


def main(commits: list[str]) -> None:
    """Print the table."""
    sources: dict[str, Callable[[], Files]] = {name: lambda name=name: of_commit(name) for name in commits}
    sources["now"] = working_tree
    print(table({name: figures(read()) for name, read in sources.items()}))


if __name__ == "__main__":
    main(sys.argv[1:])
