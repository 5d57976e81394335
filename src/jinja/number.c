/* Operators on values: arithmetic of Python, with ints of 64 bits, whose overflow is an error. */
#include "jinja/run.h"

#include <math.h>
#include <string.h>

static bool fail_overflow(dra_trun *r) { return dra_trun_fail(r, "an int of more than 64 bits"); }

static const char *sign_of(dra_top op)
{
    static const char *const signs[] = {"+", "-", "*", "/", "//", "%", "**"};
    return signs[op];
}

static bool fail_operands(dra_trun *r, dra_top op, const dra_tvalue *a, const dra_tvalue *b)
{
    if (a->kind == DRA_T_UNDEFINED || b->kind == DRA_T_UNDEFINED) {
        const dra_tvalue *x = a->kind == DRA_T_UNDEFINED ? a : b;
        return dra_trun_fail(r, "'%.*s' is undefined, found next to %s", (int)x->n, x->text,
                             sign_of(op));
    }
    return dra_trun_fail(r, "%s %s %s cannot be computed", dra_tkind_name(a), sign_of(op),
                         dra_tkind_name(b));
}

/* ---- ints ------------------------------------------------------------------------------------ */

static bool int_power(dra_trun *r, int64_t a, int64_t b, dra_tvalue *out)
{
    int64_t x = 1;
    if (b < 0) {
        if (a == 0) return dra_trun_fail(r, "0 ** a negative number");
        *out = dra_treal(pow((double)a, (double)b));
        return true;
    }
    if (a == 0 || a == 1 || a == -1) {
        *out = dra_tint(b == 0 ? 1 : a == -1 && b % 2 == 0 ? 1 : a);
        return true;
    }
    for (; b > 0; b--)
        if (__builtin_mul_overflow(x, a, &x)) return fail_overflow(r);
    *out = dra_tint(x);
    return true;
}

/* Quotient or remainder, rounded towards minus infinity, so that the remainder has the sign of
 * b. */
static bool int_divide(dra_trun *r, dra_top op, int64_t a, int64_t b, dra_tvalue *out)
{
    if (b == 0) return dra_trun_fail(r, "division by zero");
    if (a == INT64_MIN && b == -1) {
        if (op == DRA_OP_FLOOR) return fail_overflow(r);
        *out = dra_tint(0);
        return true;
    }
    const int64_t rest = a % b;
    const bool    down = rest != 0 && (rest < 0) != (b < 0);
    *out = dra_tint(op == DRA_OP_FLOOR ? a / b - down : down ? rest + b : rest);
    return true;
}

static bool int_binary(dra_trun *r, dra_top op, int64_t a, int64_t b, dra_tvalue *out)
{
    int64_t x = 0;
    bool    lost = false;
    switch (op) {
    case DRA_OP_ADD: lost = __builtin_add_overflow(a, b, &x); break;
    case DRA_OP_SUB: lost = __builtin_sub_overflow(a, b, &x); break;
    case DRA_OP_MUL: lost = __builtin_mul_overflow(a, b, &x); break;
    case DRA_OP_DIV:
        if (b == 0) return dra_trun_fail(r, "division by zero");
        *out = dra_treal((double)a / (double)b);
        return true;
    case DRA_OP_POW: return int_power(r, a, b, out);
    default: return int_divide(r, op, a, b, out);
    }
    *out = dra_tint(x);
    return lost ? fail_overflow(r) : true;
}

/* ---- floats ---------------------------------------------------------------------------------- */

static bool real_binary(dra_trun *r, dra_top op, double a, double b, dra_tvalue *out)
{
    double x = 0;
    if ((op == DRA_OP_DIV || op == DRA_OP_FLOOR || op == DRA_OP_MOD) && b == 0)
        return dra_trun_fail(r, "division by zero");
    switch (op) {
    case DRA_OP_ADD: x = a + b; break;
    case DRA_OP_SUB: x = a - b; break;
    case DRA_OP_MUL: x = a * b; break;
    case DRA_OP_DIV: x = a / b; break;
    case DRA_OP_FLOOR:
    case DRA_OP_MOD: {
        double rest = fmod(a, b), quotient = (a - rest) / b;
        if (rest != 0 && (rest < 0) != (b < 0)) rest += b, quotient -= 1;
        if (rest == 0) rest = copysign(0, b);
        x = op == DRA_OP_MOD ? rest : round(quotient);
        if (op == DRA_OP_FLOOR && x == 0) x = copysign(0, a / b);
        break;
    }
    default: x = pow(a, b); break;
    }
    if (op == DRA_OP_POW && !isfinite(x) && isfinite(a) && isfinite(b))
        return dra_trun_fail(r, "%g ** %g cannot be computed", a, b);
    *out = dra_treal(x);
    return true;
}

bool dra_tnegate(dra_trun *r, const dra_tvalue *x, dra_tvalue *out)
{
    if (x->kind == DRA_T_FLOAT) {
        *out = dra_treal(-x->real);
        return true;
    }
    if (!dra_tis_whole(x)) return dra_trun_fail(r, "- %s cannot be computed", dra_tkind_name(x));
    if (dra_twhole(x) == INT64_MIN) return fail_overflow(r);
    *out = dra_tint(-dra_twhole(x));
    return true;
}

/* ---- strings and lists ----------------------------------------------------------------------- */

static bool join_lists(dra_trun *r, const dra_tvalue *a, const dra_tvalue *b, dra_tvalue *out)
{
    dra_tvalue *items = dra_trun_alloc(r, a->n + b->n, sizeof *items);
    if (!items) return false;
    if (a->n) memcpy(items, a->items, a->n * sizeof *items);
    if (b->n) memcpy(items + a->n, b->items, b->n * sizeof *items);
    *out = (dra_tvalue){a->kind, a->n + b->n, {.items = items}};
    return true;
}

static bool join_texts(dra_trun *r, const dra_tvalue *a, const dra_tvalue *b, dra_tvalue *out)
{
    char *text = dra_trun_alloc(r, a->n + b->n, 1);
    if (!text) return false;
    if (a->n) memcpy(text, a->text, a->n);
    if (b->n) memcpy(text + a->n, b->text, b->n);
    *out = dra_tstring(text, a->n + b->n);
    return true;
}

static bool repeat_sequence(dra_trun *r, const dra_tvalue *x, int64_t times, dra_tvalue *out)
{
    const size_t count = times > 0 && x->n ? (size_t)times : 0;
    const size_t size = x->kind == DRA_T_STRING ? 1 : sizeof *x->items;
    if (count > DRA_TEMPLATE_BYTES)
        return dra_trun_fail(r, "%lld repetitions are too many", (long long)times);
    char       *to = dra_trun_alloc(r, count * x->n, size);
    const void *from = x->kind == DRA_T_STRING ? (const void *)x->text : (const void *)x->items;
    if (!to || !dra_trun_spend(r, count)) return false;
    for (size_t i = 0; i < count; i++) memcpy(to + i * x->n * size, from, x->n * size);
    *out = *x;
    out->n = count * x->n;
    if (x->kind == DRA_T_STRING)
        out->text = to;
    else
        out->items = (const dra_tvalue *)(const void *)to;
    return true;
}

static bool is_sequence(const dra_tvalue *x) { return x->kind == DRA_T_STRING || dra_tis_list(x); }

bool dra_tbinary(dra_trun *r, dra_top op, const dra_tvalue *a, const dra_tvalue *b, dra_tvalue *out)
{
    if (dra_tis_whole(a) && dra_tis_whole(b))
        return int_binary(r, op, dra_twhole(a), dra_twhole(b), out);
    if (dra_tis_number(a) && dra_tis_number(b))
        return real_binary(r, op, dra_tnumber(a), dra_tnumber(b), out);
    if (op == DRA_OP_ADD && a->kind == b->kind && is_sequence(a))
        return a->kind == DRA_T_STRING ? join_texts(r, a, b, out) : join_lists(r, a, b, out);
    if (op == DRA_OP_MUL && is_sequence(a) && dra_tis_whole(b))
        return repeat_sequence(r, a, dra_twhole(b), out);
    if (op == DRA_OP_MUL && is_sequence(b) && dra_tis_whole(a))
        return repeat_sequence(r, b, dra_twhole(a), out);
    return fail_operands(r, op, a, b);
}

bool dra_tcompare(dra_trun *r, dra_top op, const dra_tvalue *a, const dra_tvalue *b, bool *out)
{
    int order = 0;
    switch (op) {
    case DRA_OP_EQ: return dra_tequal(r, a, b, out);
    case DRA_OP_NE:
        if (!dra_tequal(r, a, b, out)) return false;
        *out = !*out;
        return true;
    case DRA_OP_IN: return dra_tcontains(r, b, a, out);
    case DRA_OP_NOT_IN:
        if (!dra_tcontains(r, b, a, out)) return false;
        *out = !*out;
        return true;
    default: break;
    }
    if (!dra_torder(r, a, b, &order)) return false;
    const bool unordered = (a->kind == DRA_T_FLOAT && isnan(a->real)) ||
                           (b->kind == DRA_T_FLOAT && isnan(b->real));
    *out = !unordered && (op == DRA_OP_LT   ? order < 0
                          : op == DRA_OP_LE ? order <= 0
                          : op == DRA_OP_GT ? order > 0
                                            : order >= 0);
    return true;
}
