"""The API reference: a page per public name, written from source and docstrings.

Pages are written to docs/reference/api/ before Sphinx reads, and only if they changed.
Docstrings are Google style with code in single backticks; what their `References:`
cite is shown with the paper's equation (docs/reference/formulas.toml).
"""

import ast
import dataclasses
import functools
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from docutils import nodes
from equations_page import Formula, places, read_formulas
from public_names import (
    MODULES,
    ROOT,
    Public,
    folder,
    module_path,
    public_in,
    public_names,
    tree_of,
)
from sphinx import addnodes
from sphinx.util.nodes import find_pending_xref_condition

from churn_jax.equations import equation_index, references, tag

API = ROOT / "docs" / "reference" / "api"
EQUATIONS = "../../equations.html"
FORMULAS = ROOT / "docs" / "reference" / "formulas.toml"
SECTION = re.compile(
    r"(Args|Attributes|Returns|Yields|Raises|Example|Notes|References):"
)
ENTRY = re.compile(r"(\*{0,2}[\w.]+(?:, \*{0,2}[\w.]+)*):(?:\s+(.*)|)$")
TOKEN = re.compile(r"`([^`]+)`|(https?://[^\s)>,]+[^\s)>,.;])|([\\*|_])", re.S)
NAME = re.compile(r"[A-Za-z_][\w.]*(?:\(\))?")


# ---- names and links ----------------------------------------------------------------


@functools.cache
def by_name() -> dict[str, Public]:
    """Every name by which a docstring or a page may mean a public one."""
    found: dict[str, Public] = {}
    short: dict[str, list[Public]] = {}
    for public in public_names():
        for qualified in (public.qualified, *public.also):
            found[qualified] = found[qualified.removeprefix("churn_jax.")] = public
        short.setdefault(public.name, []).append(public)
    for name, meant in short.items():
        # One lower-case word is more often a word than a function of another package.
        if len(meant) == 1 and re.search("[A-Z_]", name):
            found.setdefault(name, meant[0])
    return found


def meaning(text: str, module: str = "", own: Iterable[str] = ()) -> Public | None:
    """The public name that a piece of code is, read in a module; None for others."""
    name = text.removesuffix("()")
    if not NAME.fullmatch(text) or name in own:
        return None
    return by_name().get(f"{module}.{name}") or by_name().get(name)


def inline(text: str, module: str, own: Iterable[str] = ()) -> str:
    """A docstring's prose as reStructuredText: code, links, and nothing else marked."""

    def replace(match):
        code, url, special = match.groups()
        if special:
            return "\\" + special
        if url:
            return url
        code = re.sub(r"\s*\n\s*", " ", code)
        if public := meaning(code, module, own):
            return rf"\ :py:obj:`{code} <{public.qualified}>`\ "
        if code.strip() != code:
            code = code.strip()
        return rf"\ ``{code}``\ "

    return TOKEN.sub(replace, text)


# ---- docstrings ---------------------------------------------------------------------


def sections(docstring: str) -> Iterator[tuple[str, list[str]]]:
    """The parts of a Google-style docstring; the first has no title."""
    title, lines = "", []
    for line in docstring.splitlines():
        if found := SECTION.fullmatch(line):
            yield title, lines
            title, lines = found[1], []
        elif title and line and not line.startswith(" "):
            yield title, lines
            title, lines = "", [line]
        else:
            lines.append(line)
    yield title, lines


def prose(lines: list[str], module: str, own: Iterable[str] = ()) -> list[str]:
    """Paragraphs, lists, examples and indented blocks."""
    out: list[str] = []
    for block in re.split(r"\n\s*\n", textwrap.dedent("\n".join(lines)).strip("\n")):
        if block and all(row.startswith("    ") for row in block.splitlines()):
            out += code_block("none", textwrap.dedent(block))
            continue
        text, *example = re.split(r"^(?=>>>)", block, maxsplit=1, flags=re.M)
        for item in filter(None, re.split(r"\n(?=\* )", text.rstrip("\n"))):
            bullet = "* " if item.startswith("* ") else ""
            item = re.sub("::$", ":", item.removeprefix(bullet), flags=re.M)
            out += [*(bullet + inline(item, module, own)).splitlines(), ""]
        for code in example:
            out += code_block("pycon", code)
    return out


def code_block(language: str, text: str) -> list[str]:
    """Lines of code."""
    return [f".. code-block:: {language}", "", *indent(text.splitlines()), ""]


def entries(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """`name: text` entries with their continuation; the name is "" for free text."""
    found: list[tuple[str, list[str]]] = []
    for line in textwrap.dedent("\n".join(lines)).strip("\n").splitlines():
        entry = ENTRY.fullmatch(line)
        if entry or (found and found[-1][0] and line and not line.startswith(" ")):
            found.append((entry[1], [entry[2] or ""]) if entry else ("", [line]))
        elif found:
            found[-1][1].append(line)
        else:
            found.append(("", [line]))
    for name, (first, *rest) in found:
        yield name, [first, *textwrap.dedent("\n".join(rest)).splitlines()]


def indent(lines: Iterable[str], by: int = 3) -> list[str]:
    """Lines moved to the right; empty ones stay empty."""
    return [" " * by + line if line else "" for line in lines]


def listed(label: str, items: list[tuple[str, list[str]]]) -> list[str]:
    """A field of a definition: terms and what is said about each."""
    out = [f":{label}:"]
    for term, text in items:
        if term:
            out += indent([term, *indent(text or ["\\ "])])
        else:
            out += indent(text)
        if out[-1]:
            out.append("")
    return out


def terms(names: str) -> str:
    """Names of arguments as code."""
    return ", ".join(f"``{name}``" for name in names.split(", "))


def described(docstring: str, public: Public, own: Iterable[str] = ()) -> list[str]:
    """A docstring as the body of a definition."""
    out: list[str] = []
    tail: list[str] = []
    say = functools.partial(prose, module=public.module, own=own)
    cited = cited_by(docstring)
    for position, (title, lines) in enumerate(sections(docstring)):
        if title == "Attributes":
            continue  # with the fields
        if title in ("Args", "Raises"):
            found = [
                (exception(n) if title == "Raises" else terms(n) if n else "", say(t))
                for n, t in entries(lines)
            ]
            out += listed("Arguments" if title == "Args" else title, found)
        elif title in ("Returns", "Yields"):
            out += listed(title, [("", say(lines))])
        elif title == "References":
            continue  # at the end
        elif title:
            tail += [f".. rubric:: {title}", "", *say(lines)]
        else:
            out += say(lines)
        if position == 0:
            out += equations(cited)
    return out + tail + citations(cited)


def cited_by(docstring: str) -> list[dict[str, str]]:
    """`paper`, `label`, `citation` and `url` of a docstring's references."""
    return [found for found in map(tag, references(docstring)) if found is not None]


@functools.cache
def formulas() -> dict[tuple[str, str], Formula]:
    """The papers' equations, by paper and label."""
    return read_formulas(FORMULAS)


def drawn(reference: dict[str, str]) -> list[Formula]:
    """The equations that a reference names."""
    keys = ((reference["paper"], place) for place in places(reference["label"]))
    return [formulas()[key] for key in keys if key in formulas()]


def exception(names: str) -> str:
    """Exceptions that a function raises, ours with a link."""
    found = [(name, by_name().get(name)) for name in names.split(", ")]
    return ", ".join(
        f":py:obj:`{name} <{public.qualified}>`" if public else f"``{name}``"
        for name, public in found
    )


def equations(cited: list[dict[str, str]]) -> list[str]:
    """The equations of the papers that a name cites, drawn."""
    out: list[str] = []
    for reference in cited:
        for formula in drawn(reference):
            out += [
                ".. container:: equation",
                "",
                f"   `{formula.paper} {formula.label}"
                f" <{EQUATIONS}#{formula.anchor}>`__",
                "",
                "   .. math::",
                "",
                *indent(formula.tex.strip().splitlines(), 6),
                "",
            ]
    return out


@functools.cache
def indexed() -> set[str]:
    """The papers that the equations page has."""
    return {entry.paper for entry in equation_index()}


def citations(cited: list[dict[str, str]]) -> list[str]:
    """The papers that a name cites, each once with its places."""
    labels: dict[tuple[str, str, str], list[str]] = {}
    for reference in cited:
        key = reference["paper"], reference["citation"], reference["url"]
        labels.setdefault(key, []).append(reference["label"])
    out = [".. rubric:: References", ""] if labels else []
    for (paper, citation, url), several in labels.items():
        where = inline("; ".join(dict.fromkeys(several)), "")
        key = f"`{paper} <{EQUATIONS}#{paper}>`__" if paper in indexed() else paper
        out += [f"* {key} {where}:", f"  {inline(citation, '')} {url}"]
    return [*out, ""]


# ---- signatures ---------------------------------------------------------------------


def annotation(node: ast.expr | None, path: Path | None = None) -> str:
    """A type as its author wrote it; public names in full if a file is given."""
    if node is None:
        return ""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        node = ast.parse(node.value, mode="eval").body
    if path is None:
        return ast.unparse(node)
    node = ast.parse(ast.unparse(node), mode="eval").body
    for name in ast.walk(node):
        if isinstance(name, ast.Name) and (public := public_in(path, name.id)):
            name.id = public.qualified
    return ast.unparse(node)


def signature(node: ast.FunctionDef, path: Path, *, bound: bool = False) -> str:
    """`(logits: Logits, *, mask: Mask | None = None) -> Scalar`, from the source."""
    arguments = ast.parse(ast.unparse(node)).body[0].args
    if bound:
        del (arguments.posonlyargs or arguments.args)[:1]
    for argument in ast.walk(arguments):
        if isinstance(argument, ast.arg) and argument.annotation is not None:
            argument.annotation = ast.Name(annotation(argument.annotation, path))
    back = annotation(node.returns, path)
    return f"({ast.unparse(arguments)})" + (f" -> {back}" if back else "")


def arguments_of(node: ast.FunctionDef) -> list[str]:
    """Names of the arguments, which a docstring means by them."""
    given = node.args
    return [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def own_bases(cls: type) -> list[tuple[type, ast.ClassDef]]:
    """A class and its bases in our packages, the most general last."""
    found = []
    for base in cls.__mro__:
        if base.__module__.startswith(("churn_jax", "churn_compare")):
            tree = tree_of(module_path(base.__module__))
            nodes = (n for n in ast.walk(tree) if isinstance(n, ast.ClassDef))
            found += [(base, n) for n in nodes if n.name == base.__name__][:1]
    return found


def default(node: ast.expr | None) -> str | None:
    """Default of a field; None where it must be given."""
    if not isinstance(node, ast.Call):
        return None if node is None else ast.unparse(node)
    name = ast.unparse(node.func).rpartition(".")[2]
    if name in ("coefficient", "setting", "share", "static") and node.args:
        return ast.unparse(node.args[0])
    if name not in ("field", "static_field"):
        return ast.unparse(node)
    given = {k.arg: k.value for k in node.keywords}
    if (factory := given.get("default_factory")) is not None:
        if isinstance(factory, ast.Lambda):
            return ast.unparse(factory.body)
        return f"{ast.unparse(factory)}()"
    return ast.unparse(given["default"]) if "default" in given else None


@dataclasses.dataclass
class Field:
    """A field of a record."""

    name: str
    type: str
    linked: str  # the type with public names in full
    default: str | None
    text: list[str]
    keyword: bool = False


def fields(cls: type) -> list[Field]:
    """The fields of a dataclass, a named tuple or a Flax module, with their docs."""
    if dataclasses.is_dataclass(cls):
        order = {f.name: f.kw_only for f in dataclasses.fields(cls) if f.init}
    else:
        order = dict.fromkeys(getattr(cls, "_fields", ()), False)
    found: dict[str, Field] = {}
    for base, node in reversed(own_bases(cls)):
        path = module_path(base.__module__)
        source, told = path.read_text().splitlines(), {}
        for title, lines in sections(inspect.cleandoc(ast.get_docstring(node) or "")):
            for names, text in entries(lines) if title == "Attributes" else ():
                told.update(dict.fromkeys(names.split(", "), text))
        for item in node.body:
            if not isinstance(item, ast.AnnAssign):
                continue
            name = ast.unparse(item.target)
            comment = comment_of(source, item, "    # ")
            if name not in told and comment and "pyrefly" not in comment:
                told[name] = [comment]
            if name in order:
                types = annotation(item.annotation), annotation(item.annotation, path)
                value, keyword = default(item.value), bool(order[name])
                found[name] = Field(name, *types, value, told.get(name, []), keyword)
        for name, text in told.items():
            if name in found and text:
                found[name].text = text
    hidden = ("parent", "name") if hasattr(cls, "module_class_method") else ()
    return [found[name] for name in order if name in found and name not in hidden]


def comment_of(lines: list[str], node: ast.stmt, start: str) -> str:
    """The comment above an assignment, or else the one at its end."""
    above, found = node.lineno - 2, []
    while above >= 0 and lines[above].startswith(start):
        found.insert(0, lines[above].removeprefix(start))
        above -= 1
    return " ".join(found) or lines[node.end_lineno - 1].partition("  # ")[2]


def class_signature(cls: type, parts: list[Field]) -> str:
    """How an instance is made."""
    for base, node in own_bases(cls):
        for item in node.body:
            if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                path = module_path(base.__module__)
                return signature(item, path, bound=True).partition(" -> ")[0]
        if dataclasses.is_dataclass(base) or hasattr(base, "_fields"):
            break
    shown, starred = [], False
    for part in parts:
        if part.keyword and not starred:
            shown.append("*")
            starred = True
        value = "" if part.default is None else f" = {part.default}"
        shown.append(f"{part.name}: {part.linked}{value}")
    return f"({', '.join(shown)})" if shown else ""


# ---- pages --------------------------------------------------------------------------


def kind_of(node: ast.stmt) -> str:
    """The directive for what a statement defines."""
    if isinstance(node, ast.ClassDef):
        bases = " ".join(map(ast.unparse, node.bases))
        error = re.search(r"(Error|Exception|Warning)\b", bases)
        return "exception" if error else "class"
    return "function" if isinstance(node, ast.FunctionDef) else "data"


def docstring_of(public: Public) -> str:
    """Its docstring; of a constant, the string or the comment at its assignment."""
    if isinstance(public.node, ast.FunctionDef | ast.ClassDef):
        return inspect.cleandoc(ast.get_docstring(public.node) or "")
    body = tree_of(public.path).body
    if public.node in body:
        after = body[body.index(public.node) + 1 :][:1]
        for node in after:
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                return inspect.cleandoc(str(node.value.value))
    lines = public.path.read_text().splitlines()
    text = comment_of(lines, public.node, "# ")
    if isinstance(public.node, ast.ImportFrom):
        text = f"`{public.node.module}.{public.name}`."
    return text[:1].upper() + text[1:] if "`" not in text[:1] else text


def summary(public: Public) -> str:
    """The first sentence or paragraph of its docstring, on one line."""
    return " ".join(docstring_of(public).partition("\n\n")[0].split())


def data_lines(public: Public) -> list[str]:
    """The options of a constant: its value, if that is short."""
    node = public.node
    value = getattr(node, "value", None)
    if value is None:
        return []
    target = node.targets[0] if isinstance(node, ast.Assign) else None
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        names = [ast.unparse(name) for name in target.elts]
        value = value.elts[names.index(public.name)]
    text = ast.unparse(value)
    return [f":value: {text}"] if len(text) <= 100 else []


def methods(public: Public, cls: type) -> list[str]:
    """The public methods and properties of a class, its own first."""
    out: list[str] = []
    seen: set[str] = {f.name for f in fields(cls)}
    for base, node in own_bases(cls):
        home = by_name().get(base.__name__)
        inherited: list[str] = []
        for item in node.body:
            if not isinstance(item, ast.FunctionDef) or item.name in seen:
                continue
            if item.name.startswith("_") and item.name != "__call__":
                continue
            marks = [ast.unparse(d) for d in item.decorator_list]
            if item.name == "__call__" and not ast.get_docstring(item):
                continue
            if any(mark.endswith((".setter", "overload")) for mark in marks):
                continue
            seen.add(item.name)
            if base is not cls and home is not None and home.module:
                inherited.append(item.name)
                continue
            out += ["", *method(public, item, marks)]
        if inherited and home is not None:
            links = ", ".join(
                f":py:obj:`{name} <{home.qualified}.{name}>`" for name in inherited
            )
            out += ["", f"From :py:obj:`{home.name} <{home.qualified}>`: {links}.", ""]
    return out


def method(public: Public, node: ast.FunctionDef, marks: list[str]) -> list[str]:
    """One method or property."""
    doc = inspect.cleandoc(ast.get_docstring(node) or "")
    body = described(doc, public, arguments_of(node)) if doc else []
    if any(
        mark.rpartition(".")[2] in ("property", "cached_property") for mark in marks
    ):
        kind = annotation(node.returns, public.path)
        options = [f":type: {kind}"] if kind else []
        return [f".. py:property:: {node.name}", *indent(options), "", *indent(body)]
    options = [f":{m}:" for m in ("classmethod", "staticmethod") if m in marks]
    head = (
        f"{node.name}{signature(node, public.path, bound='staticmethod' not in marks)}"
    )
    return [f".. py:method:: {head}", *indent(options), "", *indent(body)]


def page(public: Public, repository: str) -> str:
    """The page of a public name, in reStructuredText."""
    top = public.module in ("churn_jax", "churn_compare")
    title = public.qualified if top else public.short
    doc = docstring_of(public)
    head, body, options = public.name, [], []
    if isinstance(public.node, ast.FunctionDef):
        head += signature(public.node, public.path)
        body = described(doc, public, arguments_of(public.node))
    elif isinstance(public.node, ast.ClassDef):
        cls = getattr(importlib.import_module(public.module), public.name)
        parts = fields(cls)
        head += class_signature(cls, parts)
        bases = [
            f":py:obj:`{b.__name__} <{found.qualified}>`"
            for b in cls.__bases__
            if (found := by_name().get(b.__name__))
            and found.qualified != public.qualified
        ]
        body = ["Bases: " + ", ".join(bases), ""] if bases else []
        own = [part.name for part in parts]
        body += described(doc, public, own)
        if parts:
            say = functools.partial(prose, module=public.module, own=own)
            rows = []
            for part in parts:
                value = "" if part.default is None else f" = {part.default}"
                term = f"``{part.name}: {part.type}{value}``"
                rows.append((term, say(part.text) if part.text else []))
            rubrics = [i for i, x in enumerate(body) if x.startswith(".. rubric::")]
            at = min(rubrics, default=len(body))
            body[at:at] = listed("Fields", rows)
        else:
            extra = (x for t, x in sections(doc) if t == "Attributes")
            found = [
                (terms(n) if n else "", prose(t, public.module))
                for lines in extra
                for n, t in entries(lines)
            ]
            body += listed("Attributes", found) if found else []
        body += methods(public, cls)
    else:
        options = data_lines(public)
        body = described(doc, public)
    kind = kind_of(public.node)
    out = [title, "=" * len(title), "", f".. py:currentmodule:: {public.module}", ""]
    out += [f".. py:{kind}:: {head}", *indent(options), "", *indent(body), ""]
    for module, _, name in (other.rpartition(".") for other in public.also):
        out += [f".. py:currentmodule:: {module}", ""]
        out += [f".. py:{kind}:: {name}", "   :no-typesetting:", ""]
    source = f"``{public.file}``"
    if repository:
        source = f"`{public.file} <{repository}/blob/main/{public.file}>`__"
    also = ", ".join(f"``{other}``" for other in public.also)
    source += f". Also {also}." if also else ""
    return "\n".join(
        [*out, ".. container:: api-source", "", f"   Source: {source}", ""]
    )


def groups(module: str) -> dict[str, list[Public]]:
    """The names of a module by the subject of the file that defines them."""
    found: dict[str, list[Public]] = {}
    also: list[Public] = []
    for public in public_names():
        if public.module == module:
            subject = ast.get_docstring(tree_of(public.path)) or public.path.stem
            head = subject.partition("\n\n")[0].replace("\n", " ").rstrip(".")
            found.setdefault(head, []).append(public)
        elif module in (other.rpartition(".")[0] for other in public.also):
            also.append(public)
    return found | ({"Also here": also} if also else {})


def overview(module: str) -> str:
    """The page of a package: its docstring and a table of its names."""
    doc = inspect.cleandoc(ast.get_docstring(tree_of(module_path(module))) or "")
    out = [module, "=" * len(module), "", f".. py:module:: {module}", ""]
    out += prose(doc.splitlines(), module)
    grouped = groups(module)
    for head, names in grouped.items():
        if len(grouped) > 1:
            head = inline(head, module)
            out += [head, "-" * len(head), ""]
        out += [".. list-table::", "   :class: api-names", "   :widths: 32 68", ""]
        for public in sorted(names, key=lambda p: p.name.lower()):
            said = inline(summary(public), public.module).strip() or "\\ "
            out += [
                f"   * - :py:obj:`{public.name} <{public.qualified}>`",
                f"     - {said}",
            ]
        out.append("")
    here = [p for p in public_names() if p.module == module]
    out += [".. toctree::", "   :hidden:", ""]
    out += [f"   /reference/api/{p.page}" for p in here]
    return "\n".join([*out, ""])


def write_pages(app) -> None:
    """Writes the pages that are new or changed, and removes those of lost names."""
    wanted = {
        API / f"{p.page}.rst": functools.partial(page, p, app.config.churn_repository)
        for p in public_names()
    }
    wanted |= {
        API / folder(module) / "index.rst": functools.partial(overview, module)
        for module in MODULES
    }
    for path, make in wanted.items():
        text = make()
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    for path in {*API.rglob("*.rst")} - {*wanted}:
        path.unlink()


# ---- in Sphinx ----------------------------------------------------------------------


def link_code(app, doctree, docname) -> None:
    """The dotted name of a public object, as code on any page, leads to its page."""
    if docname.count("/") > 2:
        return  # a page that is made here
    overview = docname == "reference/api/index"
    for literal in list(doctree.findall(nodes.literal)):
        text = literal.astext()
        if isinstance(literal.parent, nodes.reference | addnodes.pending_xref):
            continue
        if ("." not in text and not overview) or any(
            isinstance(p, nodes.title | nodes.reference) for p in ancestors(literal)
        ):
            continue
        module = text.removesuffix("()")
        if public := meaning(text):
            place, anchor = public.page, public.qualified
        elif module in MODULES:
            place, anchor = f"{folder(module)}/index", f"module-{module}"
        else:
            continue
        uri = app.builder.get_relative_uri(docname, f"reference/api/{place}")
        reference = nodes.reference("", "", internal=True, refuri=f"{uri}#{anchor}")
        literal.replace_self(reference)
        reference += literal


def ancestors(node) -> Iterator[nodes.Element]:
    """The nodes around a node."""
    while node := node.parent:
        yield node


def drop_guesses(app, doctree) -> None:
    """Types in signatures that are not ours are text, not names to look for."""
    for node in list(doctree.findall(addnodes.pending_xref)):
        target = node.get("reftarget", "")
        if node.get("refdomain") == "py" and not target.startswith(
            ("churn_jax", "churn_compare")
        ):
            short = find_pending_xref_condition(node, "resolved")
            node.replace_self(node.children if short is None else short.children)


def sidebar(app, pagename, templatename, context, doctree) -> None:
    """The list on the left of an API page: the packages, and the names here."""
    if not pagename.startswith("reference/api/"):
        return
    here = pagename.removeprefix("reference/api/").partition("/")[0]
    context["api_packages"] = [
        (module.removeprefix("churn_jax."), f"reference/api/{folder(module)}/index")
        for module in MODULES
    ]
    context["api_here"] = here
    context["api_names"] = [
        (public.name, f"reference/api/{public.page}")
        for public in sorted(public_names(), key=lambda p: p.name.lower())
        if folder(public.module) == here
    ]


def _star(self, node) -> None:
    self.add(node.astext())
    raise nodes.SkipNode


def setup(app):
    """Writes the pages before Sphinx looks for sources."""
    # The `*` of a signature, which the Markdown builder does not know.
    app.add_node(nodes.abbreviation, override=True, markdown=(_star, None))
    app.connect("builder-inited", write_pages)
    app.connect("doctree-resolved", link_code)
    app.connect("doctree-read", drop_guesses)
    app.connect("html-page-context", sidebar)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
