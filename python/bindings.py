"""Writes the ctypes declarations of libdra from its public headers.

    python3 bindings.py --include include --out dra/_c.py [--cc cc] [FLAG...]

The compiler preprocesses the headers; the little C that is left (enums, structs, typedefs and
prototypes) is parsed here. Afterwards the compiler is asked whether every struct has the size and
every field the place that ctypes gives it, so a file that was written is right for this compiler.
FLAGs are those of the library's build, -DDRA_REAL_DOUBLE for one.
"""
import argparse
import ctypes
import os
import re
import subprocess
import sys
import tempfile

TOKEN = re.compile(
    r"\s*(?:([A-Za-z_]\w*)|(0[xX][0-9a-fA-F]+|\d[\w.]*)|(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')"
    r"|(\.\.\.|<<|>>|[^\s\w]))")
LINE_MARK = re.compile(r'#\s*\d+\s+"([^"]*)"')
API = "__attribute__"  # stands before what the library exports, see DRA_API

SCALARS = {
    "bool": "c_bool", "char": "c_char", "int": "c_int", "unsigned": "c_uint", "float": "c_float",
    "double": "c_double", "size_t": "c_size_t", "int8_t": "c_int8", "uint8_t": "c_uint8",
    "int16_t": "c_int16", "uint16_t": "c_uint16", "int32_t": "c_int32", "uint32_t": "c_uint32",
    "int64_t": "c_int64", "uint64_t": "c_uint64", "_Bool": "c_bool", "FILE": None, "void": None,
    "uintptr_t": "c_size_t",
}


class Refused(Exception):
    """C that this parser does not know."""


class Type:
    """A base type by name, `stars` pointers to it, array sizes; or a pointer to a function."""

    def __init__(self, base, stars=0, sizes=(), function=None, const=False):
        self.base, self.stars, self.sizes = base, stars, tuple(sizes)
        self.function, self.const = function, const


class Parser:
    def __init__(self, text):
        self.tokens = [next(g for g in m.groups() if g is not None) for m in TOKEN.finditer(text)]
        self.at = 0
        self.constants = {}  # of enums
        self.enums = set()
        self.structs = {}  # name: fields [(name, Type)], in the order of their ends
        self.typedefs = {}  # name: Type
        self.opaque = set()
        self.functions = {}  # name: (Type, [Type])
        self.version = None
        self.abi = []

    def peek(self, n=0):
        return self.tokens[self.at + n] if self.at + n < len(self.tokens) else None

    def take(self, expected=None):
        token = self.peek()
        if token is None or (expected is not None and token != expected):
            context = " ".join(self.tokens[max(0, self.at - 8):self.at + 4])
            raise Refused("expected %s, found %s in: %s" % (expected, token, context))
        self.at += 1
        return token

    def skip_if(self, token):
        if self.peek() == token:
            self.at += 1
            return True
        return False

    def skip_balanced(self, opening, closing):
        """Past a pair of brackets; returns what is between them."""
        self.take(opening)
        depth, first = 1, self.at
        while depth:
            token = self.take()
            depth += (token == opening) - (token == closing)
        return self.tokens[first:self.at - 1]

    # -- expressions of constants

    def evaluate(self, tokens):
        words = [str(self.constants[t]) if t in self.constants else re.sub(r"[uUlL]+$", "", t)
                 for t in tokens]
        text = " ".join(words)
        if not re.fullmatch(r"[\d\sxXa-fA-F()+\-*/<>|&~]+", text):
            raise Refused("no constant: " + text)
        return int(eval(text.replace("/", "//"), {"__builtins__": {}}))  # digits and operators

    def take_until(self, *ends):
        first, depth = self.at, 0
        while depth or self.peek() not in ends:
            depth += (self.peek() in ("(", "[", "{")) - (self.peek() in (")", "]", "}"))
            self.take()
        return self.tokens[first:self.at]

    # -- enums, structs

    def enum_body(self):
        self.take("{")
        value = -1
        while not self.skip_if("}"):
            name = self.take()
            words = self.take_until(",", "}") if self.skip_if("=") else [str(value), "+ 1"]
            if "sizeof" not in words:  # the few that are sizes of structs are left out
                value = self.constants[name] = self.evaluate(words)
            self.skip_if(",")

    def struct_body(self, name):
        self.take("{")
        fields = []
        while not self.skip_if("}"):
            fields += self.declarations()
            self.take(";")
        self.structs.pop(name, None)
        self.structs[name] = fields
        self.opaque.discard(name)

    # -- declarations

    def base(self):
        """Qualifiers and the name of a type."""
        const, words = False, []
        while True:
            token = self.peek()
            if token in ("const", "struct", "enum", "extern", "restrict"):
                const |= token == "const"
                self.take()
            elif token in ("unsigned", "long", "short", "signed"):
                words.append(self.take())
            elif not words:
                words.append(self.take())
            else:
                break
        if words not in (["unsigned"], [words[0]]):
            raise Refused("type " + " ".join(words))
        return words[0], const

    def declarator(self, base, const):
        """A name with its stars and sizes, or a pointer to a function; the name may be missing."""
        stars = 0
        while self.peek() in ("*", "const", "restrict"):
            stars += self.take() == "*"
        if self.peek() == "(" and self.peek(1) == "*":
            self.take("(")
            self.take("*")
            name = self.take()
            self.take(")")
            return name, Type(None, function=(Type(base, stars, const=const), self.parameters()))
        name = self.take() if re.match(r"\w", self.peek() or "") else None
        sizes = []
        while self.skip_if("["):
            inside = self.take_until("]")
            self.take("]")
            sizes.append(self.evaluate(inside) if inside else 0)
        return name, Type(base, stars, sizes, const=const)

    def declarations(self):
        base, const = self.base()
        out = [self.declarator(base, const)]
        while self.skip_if(","):
            out.append(self.declarator(base, const))
        return out

    def parameters(self):
        self.take("(")
        out = []
        if self.peek() == "void" and self.peek(1) == ")":
            self.take()
        while not self.skip_if(")"):
            if self.skip_if("..."):
                raise Refused("a function with any number of arguments")
            base, const = self.base()
            _, kind = self.declarator(base, const)
            if kind.sizes:  # an array that is a parameter is a pointer
                kind = Type(kind.base, kind.stars + 1, const=kind.const)
            out.append(kind)
            self.skip_if(",")
        return out

    def typedef(self):
        kind = self.peek()
        if kind in ("struct", "enum") and (self.peek(1) == "{" or self.peek(2) == "{"):
            self.take()
            name = None if self.peek() == "{" else self.take()
            if kind == "enum":
                self.enum_body()
                self.enums.add(self.take())
            else:
                at = self.at  # the name behind the body counts where there is no other
                self.skip_balanced("{", "}")
                alias = self.take()
                end, self.at = self.at, at
                self.struct_body(alias)
                self.at = end
                if name not in (None, alias):
                    raise Refused("struct %s is called %s" % (name, alias))
        elif kind == "struct" and self.peek(3) == ";":
            self.take()
            name = self.take()
            if self.take() != name:
                raise Refused("struct %s has another name" % name)
            if name not in self.structs:
                self.opaque.add(name)
        else:
            for name, of in self.declarations():
                self.typedefs[name] = of
        self.take(";")

    def inline(self):
        """A function with a body; that of dra_abi_check() says what is to be compared."""
        head = self.take_until("{")
        body = self.skip_balanced("{", "}")
        if "dra_abi_check" not in head:
            return
        self.abi = [body[i + 2] for i, t in enumerate(body) if t == "sizeof" and body[i + 1] == "("]
        call = body.index("dra_abi_compare") + 2
        self.version = self.evaluate(body[call:body.index(",", call)])

    def prototype(self):
        while self.peek() == API:
            self.take()
            self.skip_balanced("(", ")")
        base, const = self.base()
        stars = 0
        while self.peek() in ("*", "const"):
            stars += self.take() == "*"
        name = self.take()
        if self.peek() == "(":
            self.functions[name] = (Type(base, stars, const=const), self.parameters())
        else:
            self.take_until(";")  # data
        self.take(";")

    def parse(self):
        while self.peek() is not None:
            token = self.peek()
            if token == ";":
                self.take()
            elif token == "typedef":
                self.take()
                self.typedef()
            elif token == "enum" and self.peek(1) == "{":
                self.take()
                self.enum_body()
            elif token == "struct" and self.peek(2) == "{":
                self.take()
                self.struct_body(self.take())
            elif token == "static":
                self.inline()
            elif token == "_Static_assert":
                self.take_until(";")
            else:
                self.prototype()
        if not self.abi:
            raise Refused("dra_abi_check() is not there")


# ---- as ctypes -----------------------------------------------------------------------------------


class Writer:
    def __init__(self, parsed):
        self.p = parsed

    def real(self, kind):
        """A typedef's own type."""
        while kind.function is None and kind.base in self.p.typedefs:
            of = self.p.typedefs[kind.base]
            if of.function is not None:
                return of if kind.stars == 0 else Type("void", kind.stars)
            kind = Type(of.base, of.stars + kind.stars, of.sizes + kind.sizes, const=kind.const)
        return kind

    def callback(self, kind):
        back, taken = kind.function
        return "CFUNCTYPE(%s)" % ", ".join([self.name(back, True)] +
                                           [self.name(t, True) for t in taken])

    def scalar(self, base):
        if base in self.p.enums:
            return "c_int"
        return SCALARS[base] if base in SCALARS else base

    def name(self, kind, callback=False):
        """The ctypes of a type. Handles and numbers are pointed to by addresses; text and structs
        by what they are. What a callback is handed is always an address."""
        kind = self.real(kind)
        if kind.function is not None:
            return self.callback(kind)
        known = kind.base in self.p.structs
        if kind.stars > 1:
            out = "c_void_p"
        elif kind.stars == 1:
            text = kind.base == "char" and kind.const and not callback
            out = ("c_char_p" if text else
                   "POINTER(%s)" % kind.base if known and not callback else "c_void_p")
        else:
            out = self.scalar(kind.base)
        for size in reversed(kind.sizes):
            out += " * %d" % size
        return str(out)

    def order(self):
        """Structs after those that they hold."""
        done, out = set(), []

        def visit(name):
            if name in done:
                return
            done.add(name)
            for _, kind in self.p.structs[name]:
                kind = self.real(kind)
                if kind.function is None and kind.stars == 0 and kind.base in self.p.structs:
                    visit(kind.base)
            out.append(name)

        for name in self.p.structs:
            visit(name)
        return out

    def lines(self):
        yield '"""The C interface of libdra for ctypes: written by bindings.py from the headers."""'
        yield "from typing import Any, Callable, Dict, List, Tuple"
        yield "from ctypes import CFUNCTYPE, POINTER, Structure, c_void_p, c_char_p"
        for kind in sorted(set(SCALARS.values()) - {None}):
            yield "from ctypes import " + kind
        yield ""
        for name, value in self.p.constants.items():
            yield "%s = %d" % (name, value)
        yield ""
        yield "dra_real = %s" % self.name(self.p.typedefs["dra_real"])
        for name in self.p.structs:
            yield "class %s(Structure): pass" % name
        for name in self.order():
            yield "%s._fields_ = [" % name
            for field, kind in self.p.structs[name]:
                yield "    (%r, %s)," % (field, self.name(kind))
            yield "]"
        yield ""
        yield "# name: what it returns, what it takes; looked up when first called."
        yield "FUNCTIONS: Dict[str, Callable[[], Tuple[Any, List[Any]]]] = {"
        for name, (back, taken) in sorted(self.p.functions.items()):
            kinds = ", ".join(self.name(t) for t in taken)
            yield "    %r: lambda: (%s, [%s])," % (name, self.name(back), kinds)
        yield "}"
        yield ""
        yield "ABI_VERSION = %d" % self.p.version
        yield "ABI_STRUCTS = [%s]" % ", ".join(self.p.abi)


def preprocess(cc, include, flags):
    command = [cc, "-E", "-x", "c", "-std=c17", "-DDRA_BUILD", "-I", include, *flags, "-"]
    source = '#include "dra/dra.h"\n#include "dra/abi.h"\n'
    text = subprocess.run(command, input=source, stdout=subprocess.PIPE, check=True,
                          universal_newlines=True).stdout
    ours, out = False, []
    for line in text.splitlines():
        mark = LINE_MARK.match(line)
        if mark:
            ours = os.path.abspath(mark.group(1)).startswith(os.path.abspath(include) + os.sep)
        elif ours:
            out.append(line)
    return "\n".join(out)


def check_layout(cc, include, flags, module, structs):
    """The compiler's sizes and offsets against those of ctypes."""
    lines = ['#include <stddef.h>', '#include "dra/dra.h"', '#include "dra/abi.h"']
    for name in structs:
        kind = module[name]
        lines.append('_Static_assert(sizeof(%s) == %d, "%s");' % (name, ctypes.sizeof(kind), name))
        for field, *_ in kind._fields_:
            lines.append('_Static_assert(offsetof(%s, %s) == %d, "%s.%s");' %
                         (name, field, getattr(kind, field).offset, name, field))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "layout.c")
        with open(path, "w") as f:
            f.write("\n".join(lines) + "\n")
        subprocess.run([cc, "-std=c17", "-fsyntax-only", "-I", include, *flags, path], check=True)


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--include", required=True)
    options.add_argument("--out", required=True)
    options.add_argument("--cc", default="cc")
    args, flags = options.parse_known_args()
    parsed = Parser(preprocess(args.cc, args.include, flags))
    try:
        parsed.parse()
    except Refused as e:
        sys.exit("bindings: %s" % e)
    text = "\n".join(Writer(parsed).lines()) + "\n"
    module = {"__name__": "dra._c"}
    exec(compile(text, args.out, "exec"), module)
    for describe in module["FUNCTIONS"].values():
        describe()
    check_layout(args.cc, args.include, flags, module, parsed.structs)
    with open(args.out + ".new", "w") as f:
        f.write(text)
    os.replace(args.out + ".new", args.out)


if __name__ == "__main__":
    main()
