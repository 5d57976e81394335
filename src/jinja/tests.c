/* Tests: x is name, x is name(argument). */
#include "jinja/run.h"

#define TEST(name, condition)                                                                      \
    static bool name(dra_trun *r, const dra_tvalue *self, const dra_targs *a, dra_tvalue *out)     \
    {                                                                                              \
        (void)r, (void)a;                                                                          \
        *out = dra_tbool(condition);                                                               \
        return true;                                                                               \
    }

static bool has_members(const dra_tvalue *x)
{
    return x->kind == DRA_T_STRING || dra_tis_list(x) || x->kind == DRA_T_DICT ||
           x->kind == DRA_T_UNDEFINED;
}

/* Whether two values are one object. */
static bool is_same(const dra_tvalue *a, const dra_tvalue *b)
{
    if (a->kind != b->kind) return false;
    if (a->kind == DRA_T_NONE) return true;
    if (a->kind == DRA_T_BOOL) return a->truth == b->truth;
    return a->kind == DRA_T_INT ? a->whole == b->whole : a->n == b->n && a->items == b->items;
}

TEST(defined, self->kind != DRA_T_UNDEFINED)
TEST(undefined, self->kind == DRA_T_UNDEFINED)
TEST(none, self->kind == DRA_T_NONE)
TEST(string, self->kind == DRA_T_STRING)
TEST(mapping, self->kind == DRA_T_DICT)
TEST(iterable, has_members(self))
TEST(number, dra_tis_number(self))
TEST(integer, self->kind == DRA_T_INT)
TEST(real, self->kind == DRA_T_FLOAT)
TEST(boolean, self->kind == DRA_T_BOOL)
TEST(is_true, self->kind == DRA_T_BOOL && self->truth)
TEST(is_false, self->kind == DRA_T_BOOL && !self->truth)
TEST(callable, self->kind >= DRA_T_MACRO)
TEST(sameas, is_same(self, &a->at[0]))

static bool has_remainder(dra_trun *r, const dra_tvalue *self, int64_t by, int64_t rest,
                          dra_tvalue *out)
{
    const dra_tvalue divisor = dra_tint(by);
    dra_tvalue       left;
    if (!dra_tbinary(r, DRA_OP_MOD, self, &divisor, &left)) return false;
    *out = dra_tbool(dra_tnumber(&left) == (double)rest);
    return true;
}

static bool is_even(dra_trun *r, const dra_tvalue *self, const dra_targs *a, dra_tvalue *out)
{
    (void)a;
    return has_remainder(r, self, 2, 0, out);
}

static bool is_odd(dra_trun *r, const dra_tvalue *self, const dra_targs *a, dra_tvalue *out)
{
    (void)a;
    return has_remainder(r, self, 2, 1, out);
}

static bool is_divisible(dra_trun *r, const dra_tvalue *self, const dra_targs *a, dra_tvalue *out)
{
    if (!dra_tis_whole(&a->at[0]))
        return dra_trun_fail(r, "divisibleby: expected an int, found %s",
                             dra_tkind_name(&a->at[0]));
    return has_remainder(r, self, dra_twhole(&a->at[0]), 0, out);
}

#define COMPARE(name, op)                                                                          \
    static bool name(dra_trun *r, const dra_tvalue *self, const dra_targs *a, dra_tvalue *out)     \
    {                                                                                              \
        bool holds;                                                                                \
        if (!dra_tcompare(r, op, self, &a->at[0], &holds)) return false;                           \
        *out = dra_tbool(holds);                                                                   \
        return true;                                                                               \
    }

COMPARE(eq, DRA_OP_EQ)
COMPARE(ne, DRA_OP_NE)
COMPARE(lt, DRA_OP_LT)
COMPARE(le, DRA_OP_LE)
COMPARE(gt, DRA_OP_GT)
COMPARE(ge, DRA_OP_GE)
COMPARE(in, DRA_OP_IN)

static const dra_tbuiltin tests[] = {
    {"defined", "", 0, defined},
    {"undefined", "", 0, undefined},
    {"none", "", 0, none},
    {"string", "", 0, string},
    {"mapping", "", 0, mapping},
    {"iterable", "", 0, iterable},
    {"sequence", "", 0, iterable},
    {"number", "", 0, number},
    {"integer", "", 0, integer},
    {"float", "", 0, real},
    {"boolean", "", 0, boolean},
    {"true", "", 0, is_true},
    {"false", "", 0, is_false},
    {"callable", "", 0, callable},
    {"odd", "", 0, is_odd},
    {"even", "", 0, is_even},
    {"divisibleby", "num", 1, is_divisible},
    {"sameas", "other", 1, sameas},
    {"equalto", "b", 1, eq},
    {"eq", "b", 1, eq},
    {"==", "b", 1, eq},
    {"ne", "b", 1, ne},
    {"!=", "b", 1, ne},
    {"lt", "b", 1, lt},
    {"lessthan", "b", 1, lt},
    {"<", "b", 1, lt},
    {"le", "b", 1, le},
    {"<=", "b", 1, le},
    {"gt", "b", 1, gt},
    {"greaterthan", "b", 1, gt},
    {">", "b", 1, gt},
    {"ge", "b", 1, ge},
    {">=", "b", 1, ge},
    {"in", "seq", 1, in},
};
const dra_tbuiltins dra_ttests = {tests, sizeof tests / sizeof *tests};
