/* Expressions of a template, by the order of Jinja's operators, weakest first:
 *   x if c else y    or    and    not    == != < <= > >= in    + -    ~    * / // %    **
 *   - + (of one), and then the values of primary.c */
#include "jinja/run.h"

dra_tnode *dra_twrap(dra_tparser *p, dra_tnode_kind kind, dra_tnode *a, dra_tnode *b)
{
    dra_tnode *n = a ? dra_tnew(p, kind, a->line) : NULL;
    if (!n) return NULL;
    n->a = a;
    n->b = b;
    return dra_tdone(p, n);
}

/* ---- operators ------------------------------------------------------------------------------- */

static dra_tnode *parse_unary(dra_tparser *p, bool with_filters)
{
    dra_tnode *n;
    if (!dra_tenter(p)) return NULL;
    const bool minus = dra_ttake_sign(p, "-"), plus = !minus && dra_ttake_sign(p, "+");
    if (minus || plus)
        n = dra_twrap(p, minus ? DRA_N_NEGATIVE : DRA_N_POSITIVE, parse_unary(p, false), NULL);
    else
        n = dra_tprimary(p);
    n = dra_tpostfix(p, n);
    p->depth--;
    return with_filters ? dra_tfiltered(p, n) : n;
}

typedef struct level { /* of binary operators */
    struct {
        const char *sign;
        dra_top     op;
    } row[4];
} level;

static const level powers = {{{"**", DRA_OP_POW}}};
static const level products = {
    {{"*", DRA_OP_MUL}, {"//", DRA_OP_FLOOR}, {"/", DRA_OP_DIV}, {"%", DRA_OP_MOD}}};
static const level sums = {{{"+", DRA_OP_ADD}, {"-", DRA_OP_SUB}}};

static bool take_operator(dra_tparser *p, const level *l, dra_top *op)
{
    for (int i = 0; i < 4 && l->row[i].sign; i++) {
        *op = l->row[i].op;
        if (dra_ttake_sign(p, l->row[i].sign)) return true;
    }
    return false;
}

static dra_tnode *parse_binary(dra_tparser *p, const level *l, dra_tnode *(*inner)(dra_tparser *))
{
    dra_tnode *left = inner(p);
    dra_top    op;
    while (left && take_operator(p, l, &op)) {
        dra_tnode *right = inner(p);
        left = right ? dra_twrap(p, DRA_N_BINARY, left, right) : NULL;
        if (left) left->op = op;
    }
    return left;
}

static dra_tnode *parse_operand(dra_tparser *p) { return parse_unary(p, true); }
static dra_tnode *parse_power(dra_tparser *p) { return parse_binary(p, &powers, parse_operand); }
static dra_tnode *parse_product(dra_tparser *p) { return parse_binary(p, &products, parse_power); }

static dra_tnode *parse_concat(dra_tparser *p)
{
    dra_tnode *first = parse_product(p);
    if (!first || !dra_tat_sign(p, "~")) return first;
    dra_tnode *all = dra_tnew(p, DRA_N_CONCAT, first->line);
    if (!all) return NULL;
    dra_tnode **end = &all->list;
    dra_tappend(&end, first);
    while (dra_ttake_sign(p, "~")) dra_tappend(&end, parse_product(p));
    return dra_tdone(p, all);
}

static dra_tnode *parse_sum(dra_tparser *p) { return parse_binary(p, &sums, parse_concat); }

static bool take_comparison(dra_tparser *p, dra_top *op)
{
    static const level some = {
        {{"==", DRA_OP_EQ}, {"!=", DRA_OP_NE}, {"<=", DRA_OP_LE}, {"<", DRA_OP_LT}}};
    static const level more = {{{">=", DRA_OP_GE}, {">", DRA_OP_GT}}};
    if (take_operator(p, &some, op) || take_operator(p, &more, op)) return true;
    *op = DRA_OP_IN;
    if (dra_ttake_word(p, "in")) return true;
    *op = DRA_OP_NOT_IN;
    if (p->status != DRA_OK || !dra_tat_word(p, "not")) return false;
    p->at++;
    if (dra_ttake_word(p, "in")) return true;
    p->at--;
    return false;
}

static dra_tnode *parse_comparison(dra_tparser *p)
{
    dra_tnode *left = parse_sum(p);
    dra_top    op;
    if (!left || !take_comparison(p, &op)) return left;
    dra_tnode *all = dra_twrap(p, DRA_N_COMPARE, left, NULL);
    if (!all) return NULL;
    dra_tnode **end = &all->list;
    do {
        dra_tnode *n = dra_twrap(p, DRA_N_COMPARED, parse_sum(p), NULL);
        if (n) n->op = op;
        dra_tappend(&end, n);
    } while (take_comparison(p, &op));
    return dra_tdone(p, all);
}

static dra_tnode *parse_not(dra_tparser *p)
{
    if (!dra_ttake_word(p, "not")) return parse_comparison(p);
    if (!dra_tenter(p)) return NULL;
    dra_tnode *n = dra_twrap(p, DRA_N_NOT, parse_not(p), NULL);
    p->depth--;
    return n;
}

static dra_tnode *parse_and(dra_tparser *p)
{
    dra_tnode *left = parse_not(p);
    while (left && dra_ttake_word(p, "and")) {
        dra_tnode *right = parse_not(p);
        left = right ? dra_twrap(p, DRA_N_AND, left, right) : NULL;
    }
    return left;
}

static dra_tnode *parse_or(dra_tparser *p)
{
    dra_tnode *left = parse_and(p);
    while (left && dra_ttake_word(p, "or")) {
        dra_tnode *right = parse_and(p);
        left = right ? dra_twrap(p, DRA_N_OR, left, right) : NULL;
    }
    return left;
}

dra_tnode *dra_texpression(dra_tparser *p)
{
    if (!dra_tenter(p)) return NULL;
    dra_tnode *n = parse_or(p);
    while (n && dra_ttake_word(p, "if")) {
        dra_tnode *choice = dra_twrap(p, DRA_N_CHOICE, parse_or(p), n);
        if (choice && dra_ttake_word(p, "else")) choice->c = dra_texpression(p);
        n = dra_tdone(p, choice);
    }
    p->depth--;
    return p->status == DRA_OK ? n : NULL;
}

dra_tnode *dra_ttuple(dra_tparser *p, bool with_choice)
{
    dra_tnode *first = with_choice ? dra_texpression(p) : parse_or(p);
    if (!first || !dra_tat_sign(p, ",")) return first;
    dra_tnode *all = dra_tnew(p, DRA_N_TUPLE, first->line);
    if (!all) return NULL;
    dra_tnode **end = &all->list;
    dra_tappend(&end, first);
    while (dra_ttake_sign(p, ",")) {
        if (p->at->kind == DRA_W_BLOCK_END || p->at->kind == DRA_W_PRINT_END ||
            dra_tat_sign(p, ")"))
            break;
        dra_tappend(&end, with_choice ? dra_texpression(p) : parse_or(p));
    }
    return dra_tdone(p, all);
}
