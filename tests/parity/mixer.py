"""Mixers over ctypes: dra_mixer and its graph with gradients, on top of dra.py.

    mixer = Mixer(lib, dim=16, heads=2, bias=True, a={"memory": "gru", "retrieval": "time"})
    print(mixer.params)                               # {"W_q": (16, 16), ...}
    layer = mixer.layer(B, T, fresh=True)             # the module as a graph
    (dx,) = layer.g.gradient([layer.y], [dy], [layer.x])
"""
from ctypes import (POINTER, byref, c_bool, c_char_p, c_double, c_int, c_int64, c_uint32,
                    c_void_p)
from types import SimpleNamespace

import numpy

from dra import Shape, Value, Values, struct, values

Gamma = struct("Gamma", per=c_int, start=c_int, value=c_double, ranged=c_bool, range=c_double * 2,
               depth=c_double * 2, layer=c_int, layers=c_int, learn=c_int, share=c_bool)
Memory = struct("Memory", memory=c_char_p, own=c_void_p, retrieval=c_char_p, window=c_int64,
                gamma=Gamma, joined=c_bool, dim=c_int64, head_norm=c_int, joint=c_int,
                steps=c_bool, norm=c_bool, timescales=c_int64, modes=c_int64, per_head=c_bool,
                recurrent=c_int, phi=c_int, features=c_int64, normalise=c_int, decay=c_int,
                slots=c_int64, gate=c_int, candidate=c_int, tau=c_double, tau_learned=c_bool,
                slot_decay=c_bool, pi=c_bool, maps=c_bool, norm_kind=c_int)
Config = struct("Config", dim=c_int64, heads=c_int64, key_dim=c_int64, value_dim=c_int64,
                bias=c_bool, shift=c_int, qk_norm=c_bool, v_norm=c_bool, rotary=c_bool,
                score_scale=c_double, a=Memory,
                blend=c_int, blend_value=c_double, b=Memory, key_std=c_double,
                out_gain=c_double, attention_dropout=c_double, aux=c_uint32, maps=c_bool,
                blend_given=c_bool, gives_memory=c_bool, kv_heads=c_int64, kv_order=c_int,
                qkv_norm=c_int, qkv_gain=c_int, qk_gain_start=c_double, qk_groups=c_int64,
                mem_kv=c_int64, mem_whole=c_bool, topk=c_int64, topk_straight=c_bool,
                hard=c_bool, talk_before=c_bool, talk_after=c_bool, residual_scores=c_bool,
                softcap=c_double, head_scale=c_bool, gate_values=c_int, out_glu=c_bool,
                whole=c_bool, rotary_width=c_int64, rotary_heads=c_int64, rotary_base=c_double,
                xpos_base=c_double, init=c_int)
Spec = struct("Spec", name=c_char_p, shape=Shape, fill=c_int, number=c_double, values=c_void_p,
              frozen=c_bool, items=c_bool, limit=c_int64, decay=c_bool, recurrent=c_bool,
              maximum=c_bool, product=c_bool)
Module = struct("Module", params=c_void_p, state=c_void_p, build=c_void_p, self=c_void_p,
                whole=c_bool, start=c_int64)
ModuleShape = struct("ModuleShape", B=c_int64, T=c_int64, marked=c_bool, fresh=c_bool,
                     rows=POINTER(c_int64), skips=c_bool, clamp=c_bool, layouts=c_void_p,
                     limit=c_double, holes=c_bool, inner=c_int64)

FUNCTIONS = {
    "mixer_module": (POINTER(Module), []), "mixer_destroy": (None, []),
    "specs_count": (c_int, []), "specs_at": (POINTER(Spec), [c_int]),
    "module_graph": (None, [POINTER(Module), POINTER(ModuleShape), Values, Values, Values]),
    "find_input": (Value, [c_char_p]), "find_output": (Value, [c_char_p]),
}


def fill(into, fields):
    """A struct from a dict, inner structs from inner dicts."""
    for name, value in fields.items():
        if isinstance(value, dict):
            fill(getattr(into, name), value)
        else:
            setattr(into, name, value.encode() if isinstance(value, str) else value)
    return into


class Mixer:
    """params and state: shapes by name, in the library's order; items are states of T rows."""

    def __init__(self, lib, **config):
        self.lib, self.c, self.config = lib, c_void_p(), fill(Config(), config)
        for name, (result, types) in FUNCTIONS.items():
            lib.declare(name, result, types)
        lib.check("mixer_create", byref(self.config), byref(self.c))
        self.module = lib.call("mixer_module", self.c)
        self.param_specs, self.state_specs = (self.specs(s) for s in (
            self.module.contents.params, self.module.contents.state))
        self.params = {s.name: s.shape for s in self.param_specs}

    def __del__(self):
        self.lib.call("mixer_destroy", self.c)

    def specs(self, handle):
        found = [self.lib.call("specs_at", handle, i).contents
                 for i in range(self.lib.call("specs_count", handle))]
        return [SimpleNamespace(name=s.name.decode(), shape=tuple(s.shape.dim[:s.shape.rank]),
                                items=s.items, limit=s.limit) for s in found]

    def state(self, B, T):
        """Shapes with room for T items."""
        return {s.name: (B, T, *s.shape) if s.items else (B, *s.shape) for s in self.state_specs}

    def layer(self, B, T, fresh=False):
        """Its graph g on T tokens that start B sequences, tokens bound; x, y and, by name, params,
        state and what comes after it. Without fresh there is a state to bind."""
        g, names = self.lib.graph(), [s.name for s in self.state_specs]
        param, state, after = (values([None] * n) for n in (
            len(self.params), len(names), len(names)))
        shape = ModuleShape(B, T, False, fresh, (c_int64 * len(names))(*[T] * len(names)))
        self.lib.call("module_graph", g.c, self.module, byref(shape), param, state, after)
        g.arrays.update(self.tokens(B, T))
        return SimpleNamespace(
            g=g, x=self.lib.call("find_input", g.c, b"x"),
            y=self.lib.call("find_output", g.c, b"y"), params=dict(zip(self.params, param)),
            state={} if fresh else dict(zip(names, state)),
            after={n: v for n, v in zip(names, after) if v.id})

    def tokens(self, B, T):
        """Token t is written to row t and sees rows 0..t, at most the last `limit`."""
        def rows(numbers):
            return numpy.tile(numpy.asarray(numbers, numpy.int32), (B, 1))
        t = numpy.arange(T)
        found = {"tokens.pos": rows(t), "tokens.prev": rows(t), "tokens.last": rows([T])}
        for limit in {s.limit for s in self.state_specs if s.items}:
            lo = numpy.maximum(t + 1 - limit, 0) if limit else 0 * t
            for name, numbers in ("at", t), ("lo", lo), ("hi", t + 1):
                found[f"tokens.{name}.{limit}"] = rows(numbers)
        return found
