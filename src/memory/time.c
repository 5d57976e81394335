/* time: softmax over all items so far; window: over the last N, the token's own included.
 *   y_t = sum_j a_tj V_j,  a_tj ~ exp(q_t.K_j / sqrt(D)), or another scale
 * The items are the state: K (n, H, D), V (n, H, E), rotated by their positions where there is
 * rotary; where tokens forget, also their levels (n, heads, 2), two parts of a sum. All options of
 * softmax reads are handed to dra_attend here. Items that are key and value in one, through maps
 * kappa and nu, are kept as they are: m (n, H, R).
 *
 * Transformer-XL: K and V are tables of M rows for the memory and L for the segment so far. Where a
 * segment starts, the keys and values of its memory are made once. Distances are those of rows of
 * the table, which are those of tokens; rotations count from the start of the segment. */
#include <math.h>
#include <stdio.h>

#include "memory/memory.h"
#include "memory/part.h"

enum { K, V, LEVELS };
enum { LATENT, ROPE }; /* in place of K and V */

static int64_t window_limit(const dra_memory_sizes *s) { return s->config->window; }

void dra_items_declare(const dra_memory_sizes *s, const char *prefix, dra_specs *state)
{
    const bool      items = !s->context, bf16 = items && s->bf16_items;
    const dra_shape keys = s->latent ? DRA_SHAPE(s->latent) : DRA_SHAPE(s->H, s->D);
    const dra_shape values = s->latent ? DRA_SHAPE(s->rope, s->D) : DRA_SHAPE(s->H, s->E);
    if (s->whole) return;
    if (s->joined) {
        dra_specs_add(state, prefix,
                      &(dra_spec){"m", DRA_SHAPE(s->H, s->joined), .items = true,
                                  .limit = window_limit(s), .bf16 = s->bf16_items});
    } else if (s->segment) {
        const int64_t rows = s->memory + s->segment;
        dra_specs_add(state, prefix, &(dra_spec){"K", DRA_SHAPE(rows, s->H, s->D), .table = true});
        dra_specs_add(state, prefix, &(dra_spec){"V", DRA_SHAPE(rows, s->H, s->E), .table = true});
    } else {
        dra_specs_add(state, prefix,
                      &(dra_spec){s->latent ? "C" : "K", keys, .items = items,
                                  .limit = window_limit(s), .context = s->context, .bf16 = bf16});
        if (!s->latent || s->rope)
            dra_specs_add(state, prefix,
                          &(dra_spec){s->latent ? "K" : "V", values, .items = items,
                                      .limit = window_limit(s), .context = s->context,
                                      .bf16 = bf16});
    }
    if (s->levels && !s->segment)
        dra_specs_add(
            state, prefix,
            &(dra_spec){"levels", DRA_SHAPE(s->Q, 2), .items = true, .limit = window_limit(s)});
    if (s->mean) /* sums that only grow: not clamped */
        dra_specs_add(state, prefix,
                      &(dra_spec){"sums", DRA_SHAPE(s->H * s->E + 1, 2), .maximum = true});
    if (s->selective) /* the same, of items by their number in the text */
        dra_specs_add(state, prefix,
                      &(dra_spec){"taken", DRA_SHAPE(s->selective, 2), .table = true});
}

static int levels_at(const dra_memory_sizes *s)
{
    return s->joined || (s->latent && !s->rope) ? LEVELS - 1 : LEVELS;
}

static dra_value swap_heads(dra_graph *g, dra_value x) { return dra_transpose(g, x, 1, 2); }

/* ---- positions ------------------------------------------------------------------------------- */

/* x (B, n, heads, D) rotated by positions pos (B, n); with xPos keys have the inverse factor of
 * queries. */
static dra_value rotate_by(dra_graph *g, const dra_read_call *c, dra_value x, dra_value pos,
                           bool key)
{
    const dra_mixer_config *m = c->options->config;
    if (!m->rotary || dra_graph_failed(g)) return x;
    dra_rotary_config config = m->turn;
    config.xpos_center = 0;
    config.xpos_invert = key;
    const int64_t heads = dra_shape_of(g, x).dim[2], n = m->rotary_heads ? m->rotary_heads : heads;
    const dra_value parts[] = {
        dra_slice(g, x, 2, 0, heads - n),
        swap_heads(g,
                   dra_rotary(g, swap_heads(g, dra_slice(g, x, 2, heads - n, n)), pos, &config))};
    return n == heads ? parts[1] : dra_concat(g, 2, parts, 2);
}

static bool in_segments(const dra_read_call *c) { return c->tokens->segments.length > 0; }

/* The same for tokens, which in a segment count from its start: learned keys, which have no
 * position, see the same queries in every segment. */
static dra_value rotate_tokens(dra_graph *g, const dra_read_call *c, dra_value x, bool key)
{
    const dra_token_segments *p = &c->tokens->segments;
    if (!c->options->config->rotary || !in_segments(c))
        return rotate_by(g, c, x, c->tokens->pos, key);
    return rotate_by(g, c, x, dra_sub(g, p->rows.at, dra_integer(g, (int32_t)p->memory)), key);
}

/* Keys of Transformer-XL's memory, which ends where the segment starts. */
static dra_value rotate_memory(dra_graph *g, const dra_read_call *c, dra_value k)
{
    if (!k.id || dra_graph_failed(g)) return k;
    const int64_t   n = c->tokens->segments.seen;
    const dra_value at = dra_sub(g, dra_arange(g, n), dra_integer(g, (int32_t)n));
    return rotate_by(g, c, k, dra_broadcast(g, at, DRA_SHAPE(c->tokens->B, n)), true);
}

/* ---- laser: values as they are kept, and what was read of them ------------------------------- */

static dra_value exponential_value(dra_graph *g, const dra_read_call *c, dra_value v)
{
    const dra_attention_options *o = &c->options->config->attention;
    const double                 cap = o->laser_cap > 0 ? o->laser_cap : 15;
    if (!o->laser || !v.id) return v;
    return dra_exp(g, dra_affine(g, dra_tanh(g, dra_affine(g, v, 1 / cap, 0)), cap, 0));
}

static dra_value logarithm_read(dra_graph *g, const dra_read_call *c, dra_value y)
{
    if (!c->options->config->attention.laser) return y;
    return dra_log(g, dra_maximum(g, y, dra_number(g, 1e-20)));
}

/* ---- items ----------------------------------------------------------------------------------- */

static const dra_token_items *rows_of(const dra_read_call *c)
{
    return in_segments(c) ? &c->tokens->segments.rows
                          : dra_tokens_items(c->tokens, window_limit(c->sizes));
}

/* Items of the context: those of this call, which become the state, or those of the state. */
static dra_value take_context(const dra_read_call *c, int i, dra_value items, dra_value *state_out)
{
    if (!items.id) return c->state[i];
    if (!c->tokens->whole) state_out[i] = items;
    return items;
}

/* Are keys and values of rows of a pool read where they are? Else their pages are copied first. */
static bool in_pages(const dra_read_call *c)
{
    const dra_attention_options *o = &c->options->config->attention;
    const dra_token_items       *at = rows_of(c);
    return at && at->pages.id && !dra_attention_holds_scores(o) && !c->scores && !c->weights &&
           !c->sizes->latent && !o->mem_kv && !o->l2 && !c->options->level.id;
}

/* Items of a pool are in pages among those of all sequences, (1, all, ...). Either these, or (B,
 * rows, ...). */
static dra_value append_to_pool(dra_graph *g, const dra_token_items *at, dra_value all,
                                dra_value items, bool copies, dra_value *state_out)
{
    const int64_t B = dra_shape_of(g, items).dim[0], T = dra_shape_of(g, items).dim[1];
    dra_shape     s = dra_shape_of(g, all);
    const int64_t rows = s.dim[1], n = dra_shape_of(g, at->pages).dim[1];
    s.dim[1] = B * T;
    all = *state_out = dra_write_rows(g, all, dra_reshape(g, items, s),
                                      dra_reshape(g, at->at, DRA_SHAPE(1, B * T)));
    if (!copies) return all;
    const dra_value row = dra_add(g, dra_reshape(g, at->pages, DRA_SHAPE(B, n, 1)),
                                  dra_arange(g, DRA_ATTEND_PAGE));
    const dra_value own = dra_embedding(g, dra_reshape(g, all, DRA_SHAPE(rows, -1)), row);
    s.dim[0] = B, s.dim[1] = n * DRA_ATTEND_PAGE;
    return dra_reshape(g, own, s);
}

/* Items as the state keeps them. Levels stay as they are: sums of which only small differences
 * count. */
static dra_value round_items(dra_graph *g, const dra_read_call *c, int i, dra_value items)
{
    const dra_memory_sizes *s = c->sizes;
    const bool              kept = !s->whole && !s->context && !s->segment && i != levels_at(s);
    return s->bf16_items && kept ? dra_cast(g, items, DRA_BF16) : items;
}

/* In full precision, for what reads items otherwise than by attention to them. */
static dra_value widen_items(dra_graph *g, dra_value items)
{
    return items.id ? dra_cast(g, items, DRA_REAL) : items;
}

/* The items of the state, then those of this call, (B, rows, H, width). xl: of the memory where a
 * segment starts, or none. */
static dra_value append_rows(dra_graph *g, const dra_read_call *c, int i, dra_value items,
                             dra_value xl, dra_value *state_out)
{
    const dra_token_items *at = rows_of(c);
    items = round_items(g, c, i, items);
    if (c->sizes->context) return take_context(c, i, items, state_out);
    if (c->tokens->whole || dra_graph_failed(g)) return items;
    if (!at) return (dra_value){0};
    if (c->tokens->fresh && !c->tokens->mark.id) return items;
    dra_value before = c->state[i];
    if (in_segments(c) && !c->tokens->fresh)
        before = dra_tokens_apply_event(g, c->tokens, before, xl);
    if (c->tokens->fresh)
        before = dra_cast(g, dra_broadcast(g, dra_number(g, 0), dra_shape_of(g, items)),
                          dra_dtype_of(g, items));
    if (at->pages.id) return append_to_pool(g, at, before, items, !in_pages(c), &state_out[i]);
    return state_out[i] = dra_write_rows(g, before, items, at->at);
}

/* ---- what a query sees, and where it is ------------------------------------------------------ */

typedef struct reading {
    const dra_read_call *c;
    dra_value            q, k, v; /* (B, heads, T or rows, width) */
    dra_attend_config    config;
    dra_random_config    random;
} reading;

static void set_interval(dra_graph *g, reading *r)
{
    const dra_tokens      *t = r->c->tokens;
    const dra_token_items *at = rows_of(r->c);
    if (r->c->sizes->context) {
        r->config.hi = dra_broadcast(g, t->context_n, DRA_SHAPE(t->B, t->T));
        return;
    }
    if (in_pages(r->c)) r->config.pages = at->pages;
    r->config.lo = t->whole ? t->lo : at->lo;
    r->config.hi = t->whole ? t->hi : at->hi;
    if (t->seen.id) r->config.mask = dra_reshape(g, t->seen, DRA_SHAPE(t->B, 1, 1, t->T));
}

/* Positions by which items differ where tokens between them were not written. */
static void place_by_tokens(dra_graph *g, reading *r)
{
    const dra_tokens *t = r->c->tokens;
    const dra_shape   rows = DRA_SHAPE(t->B, t->T);
    if (!t->fresh) {
        dra_build_fail(g, "attend", DRA_ERR_VALUE,
                       "skipped tokens: biases by distance need texts that are read as a whole");
        return;
    }
    r->config.q_pos = t->pos;
    r->config.k_pos = dra_write_rows(g, dra_broadcast(g, dra_integer(g, 0), rows), t->pos,
                                     rows_of(r->c)->at);
}

/* Distances are those of rows: a query is where its own item is. Numbers of items, not of rows,
 * say which weights are dropped out, so that it does not matter where a text is cut; without
 * biases by distance, queries are numbered by their place. */
static void set_places(dra_graph *g, reading *r)
{
    const dra_read_call   *c = r->c;
    const dra_tokens      *t = c->tokens;
    const dra_token_items *at = rows_of(c);
    const bool             distances = r->config.distance.id || r->config.slopes.id;
    const bool             drops = c->drop.p > 0;
    if (c->sizes->context && drops && !dra_graph_failed(g))
        r->config.q_pos = dra_add(g, dra_arange(g, t->T),
                                  dra_reshape(g, c->drop.at, DRA_SHAPE(-1, 1)));
    if (c->sizes->context || t->whole || dra_graph_failed(g) || (!distances && !drops)) return;
    if (distances && t->skip.id) {
        place_by_tokens(g, r);
        return;
    }
    if (drops) r->config.k_pos = dra_add(g, dra_arange(g, dra_shape_of(g, r->k).dim[2]), at->base);
    if (!distances) {
        r->config.q_pos = dra_add(g, dra_arange(g, t->T),
                                  dra_reshape(g, c->drop.at, DRA_SHAPE(-1, 1)));
        return;
    }
    r->config.q_pos = t->prefix ? at->own : dra_sub(g, at->hi, dra_integer(g, 1));
    if (drops) r->config.q_pos = dra_add(g, r->config.q_pos, at->base);
}

/* The logit of one more column, whose value is 0: learned, or that of a key of zeros. */
static dra_value find_sink(dra_graph *g, const dra_read_options *o)
{
    return o->config->attention.zero_kv
               ? dra_broadcast(g, dra_number(g, 0), DRA_SHAPE(o->config->heads))
               : o->param[DRA_SINK];
}

/* ---- reading --------------------------------------------------------------------------------- */

static reading open_reading(dra_graph *g, const dra_read_call *c, dra_value q, dra_value k,
                            dra_value v)
{
    const dra_mixer_config      *m = c->options->config;
    const dra_attention_options *o = &m->attention;
    const dra_value             *param = c->options->param;
    const dra_channels          *channels = c->options->channels;
    reading                      r = {.c = c,
                                      .q = swap_heads(g, q),
                                      .k = swap_heads(g, k),
                                      .v = swap_heads(g, v),
                                      .config = {.scale = m->score_scale,
                                                 .softcap = o->softcap,
                                                 .softcap_late = o->softcap_late,
                                                 .heads = m->kv_order,
                                                 .distance = channels->value[DRA_CHANNEL_DISTANCE],
                                                 .distance_zero = channels->distance_zero,
                                                 .slopes = channels->value[DRA_CHANNEL_SLOPES],
                                                 .topk = o->topk,
                                                 .topk_straight = o->topk_straight,
                                                 .hard = o->hard,
                                                 .sigmoid = o->sigmoid,
                                                 .cope = param[DRA_COPE],
                                                 .mix_before = param[DRA_TALK_BEFORE],
                                                 .mix_after = param[DRA_TALK_AFTER],
                                                 .sink = find_sink(g, c->options)}};
    if (dra_graph_failed(g)) return r;
    if (c->sizes->context) {
        r.config.distance = r.config.slopes = (dra_value){0};
        r.config.distance_zero = 0;
    }
    set_interval(g, &r);
    set_places(g, &r);
    if (c->drop.p > 0) {
        r.random = (dra_random_config){.name = c->drop.name, .key = c->drop.key};
        r.config.dropout = c->drop.p;
    }
    return r;
}

static dra_value sum_squares(dra_graph *g, dra_value x)
{
    return dra_sum_last(g, dra_square(g, x));
}

/* -|q - k|^2 = (2 q, -|q|^2, 1).(k, 1, -|k|^2) */
static void extend_keys(dra_graph *g, reading *r)
{
    if (dra_graph_failed(g)) return;
    dra_shape q = dra_shape_of(g, r->q), k = dra_shape_of(g, r->k);
    if (!(r->config.scale > 0)) r->config.scale = 1 / sqrt((double)q.dim[3]);
    r->k = widen_items(g, r->k);
    q.dim[3] = k.dim[3] = 1;
    const dra_value one = dra_number(g, 1);
    const dra_value query[] = {dra_affine(g, r->q, 2, 0), dra_neg(g, sum_squares(g, r->q)),
                               dra_broadcast(g, one, q)};
    const dra_value key[] = {r->k, dra_broadcast(g, one, k), dra_neg(g, sum_squares(g, r->k))};
    r->q = dra_concat(g, 3, query, 3);
    r->k = dra_concat(g, 3, key, 3);
}

static dra_value attend_items(dra_graph *g, const reading *r)
{
    reading own = *r;
    own.config.random = r->config.dropout > 0 ? &r->random : NULL;
    if (r->c->options->config->attention.l2) extend_keys(g, &own);
    return dra_attend(g, own.q, own.k, own.v, &own.config);
}

/* x (K, m, width) for every row of the batch. */
static dra_value for_all(dra_graph *g, const dra_read_call *c, dra_value x)
{
    const dra_shape s = dra_shape_of(g, x);
    return dra_broadcast(g, x, DRA_SHAPE(c->tokens->B, s.dim[0], s.dim[1], s.dim[2]));
}

static dra_value push_back(dra_graph *g, dra_value x, int64_t n)
{
    return x.id ? dra_add(g, x, dra_integer(g, (int32_t)n)) : x;
}

/* Learned keys and values as the first rows. */
static void add_memory_rows(dra_graph *g, reading *r)
{
    const dra_read_options *o = r->c->options;
    const int64_t           n = o->config->attention.mem_kv;
    if (!n || dra_graph_failed(g)) return;
    const dra_value k[] = {for_all(g, r->c, o->mem_k), r->k};
    const dra_value v[] = {for_all(g, r->c, exponential_value(g, r->c, o->param[DRA_MEM_V])), r->v};
    r->k = dra_concat(g, 2, k, 2);
    r->v = dra_concat(g, 2, v, 2);
    r->config.always = n;
    r->config.lo = push_back(g, r->config.lo, n);
    r->config.hi = push_back(g, r->config.hi, n);
    r->config.q_pos = push_back(g, r->config.q_pos, n);
    if (r->config.k_pos.id)
        r->config.k_pos = dra_pad(g, push_back(g, r->config.k_pos, n), 1, n, 0, 0);
    if (r->config.mask.id) r->config.mask = dra_pad(g, r->config.mask, 3, n, 0, 1);
    if (r->config.k_level.id) r->config.k_level = dra_pad(g, r->config.k_level, 2, n, 0, 0);
}

/* x (B, H, T) as (B, H, T, 1) */
static dra_value per_query(dra_graph *g, dra_value x)
{
    if (dra_graph_failed(g)) return x;
    dra_shape s = dra_shape_of(g, x);
    s.dim[s.rank++] = 1;
    return dra_reshape(g, x, s);
}

/* What the sink leaves of y: e^lse / (e^lse + e^sink). */
static dra_value drain_sink(dra_graph *g, dra_value sink, dra_value y, dra_value lse)
{
    const dra_value rest = dra_sub(g, lse, dra_reshape(g, sink, DRA_SHAPE(-1, 1)));
    return dra_mul(g, y, per_query(g, dra_sigmoid(g, rest)));
}

/* The softmax over items and learned ones is one over both: the share of the learned ones is
 * e^l2 / (e^l1 + e^l2) = sigmoid(l2 - l1), or 1 where there are no items. */
static dra_value merge_memory(dra_graph *g, const reading *r, dra_value y, dra_value lse)
{
    const dra_read_options *o = r->c->options;
    const dra_value         sink = find_sink(g, o);
    dra_value               own = {0}, share;
    reading                 m = {.c = r->c,
                                 .q = r->q,
                                 .config = {.scale = r->config.scale,
                                            .softcap = r->config.softcap,
                                            .heads = r->config.heads,
                                            .lse = &own,
                                            .dropout = r->config.dropout}};
    char                    name[48];
    if (dra_graph_failed(g)) return y;
    m.k = for_all(g, r->c, o->mem_k);
    m.v = for_all(g, r->c, exponential_value(g, r->c, o->param[DRA_MEM_V]));
    if (m.config.dropout > 0) {
        snprintf(name, sizeof name, "%.24s.memory", r->c->drop.name);
        m.random = (dra_random_config){.name = name, .key = r->c->drop.key};
        m.config.q_pos = dra_add(g, dra_arange(g, r->c->tokens->T),
                                 dra_reshape(g, r->c->drop.at, DRA_SHAPE(-1, 1)));
    }
    const dra_value learned = attend_items(g, &m);
    dra_value       both = sink.id ? dra_add(g, lse, dra_softplus(g, dra_sub(g, own, lse))) : lse;
    share = dra_sigmoid(g, dra_sub(g, own, lse));
    if (r->c->tokens->skip.id || r->c->sizes->context) {
        const dra_shape column = DRA_SHAPE(r->c->tokens->B, 1, r->c->tokens->T);
        const dra_value lo = r->config.lo.id ? r->config.lo : dra_integer(g, 0);
        const dra_value some = dra_reshape(g, dra_less(g, lo, r->config.hi), column);
        share = dra_select(g, some, share, dra_number(g, 1));
        if (sink.id) both = dra_select(g, some, both, own);
    }
    y = dra_add(g, y, dra_mul(g, per_query(g, share), dra_sub(g, learned, y)));
    return sink.id ? drain_sink(g, sink, y, both) : y;
}

/* Which of J rows some query of this call sees, bool (B, J); none: all of them. */
static dra_value seen_rows(dra_graph *g, const dra_tokens *t, dra_value lo, dra_value hi, int64_t J)
{
    if (t->whole || (t->fresh && !t->mark.id) || dra_graph_failed(g)) return (dra_value){0};
    const dra_shape queries = DRA_SHAPE(t->B, t->T, 1);
    const dra_value row = dra_arange(g, J);
    const dra_value after = dra_greater_equal(g, row, dra_reshape(g, lo, queries));
    const dra_value before = dra_less(g, row, dra_reshape(g, hi, queries));
    const dra_value n = dra_sum(g, dra_and(g, after, before), (dra_axes){1, {1}, false});
    return dra_greater(g, n, dra_integer(g, 0));
}

/* Keys and values that no query of this call sees count as 0: scores of what is not seen are
 * replaced, but 0 times a number that is not finite would show. */
static void clear_unseen(dra_graph *g, reading *r)
{
    const dra_tokens *t = r->c->tokens;
    if (r->c->sizes->context || dra_graph_failed(g)) return;
    const int64_t   J = dra_shape_of(g, r->k).dim[2];
    const dra_value seen = seen_rows(g, t, r->config.lo, r->config.hi, J), zero = dra_number(g, 0);
    if (!seen.id) return;
    const dra_value some = dra_reshape(g, seen, DRA_SHAPE(t->B, 1, J, 1));
    r->k = dra_select(g, some, r->k, zero);
    r->v = dra_select(g, some, r->v, zero);
    if (r->config.k_level.id) r->config.k_level = dra_select(g, some, r->config.k_level, zero);
}

/* The same for latents (B, J, width), of which keys and values are made. */
static dra_value clear_latents(dra_graph *g, const dra_read_call *c, dra_value latent)
{
    const dra_token_items *at = rows_of(c);
    if (c->tokens->whole || dra_graph_failed(g)) return latent;
    const dra_shape s = dra_shape_of(g, latent);
    const dra_value seen = seen_rows(g, c->tokens, at->lo, at->hi, s.dim[1]);
    if (!seen.id) return latent;
    return dra_select(g, dra_reshape(g, seen, DRA_SHAPE(s.dim[0], s.dim[1], 1)), latent,
                      dra_number(g, 0));
}

/* ln sum e^s of masked scores (B, H, T, J): (B, H, T), 0 where nothing is seen. */
static dra_value sum_scores(dra_graph *g, dra_value s)
{
    const dra_value sums = dra_logsumexp(g, s, (dra_axes){1, {-1}, false});
    const dra_value sees = dra_greater(g, sums, dra_number(g, DRA_MASKED / 2));
    return dra_select(g, sees, sums, dra_number(g, 0));
}

/* Selective attention: what was taken from items is state. [Leviathan et al. 2024] */
static void open_selective(dra_graph *g, reading *r, dra_value *state_out)
{
    const dra_memory_sizes *s = r->c->sizes;
    const int               at = levels_at(s) + s->levels + s->mean;
    if (!s->selective || dra_graph_failed(g)) return;
    r->config.selective = s->selective;
    r->config.taken = r->c->state[at];
    r->config.taken_mark = r->c->tokens->writes;
    r->config.taken_last = &state_out[at];
}

/* The path that holds scores: it can choose among them, mix them and hand them on. */
static dra_value read_scores(dra_graph *g, reading *r, dra_value *state_out)
{
    dra_value *channel =
        &r->c->options->channels
             ->value[r->c->sizes->context ? DRA_CHANNEL_CROSS_SCORES : DRA_CHANNEL_SCORES];
    dra_value  scores = {0};
    const bool residual = r->c->options->config->attention.residual_scores;
    r->k = widen_items(g, r->k);
    r->v = widen_items(g, r->v);
    clear_unseen(g, r);
    open_selective(g, r, state_out);
    add_memory_rows(g, r);
    r->config.path = DRA_ATTEND_PLAIN;
    if (residual) r->config.previous = *channel;
    if (residual || r->c->scores || r->c->sums) r->config.scores = &scores;
    r->config.weights = r->c->weights;
    const dra_value y = attend_items(g, r);
    if (residual) *channel = scores;
    if (r->c->scores) *r->c->scores = scores;
    if (r->c->sums) *r->c->sums = sum_scores(g, scores);
    return y;
}

/* What the path that does not hold scores would show: read once more, for that alone. */
static void show_scores(dra_graph *g, reading r)
{
    r.config.dropout = 0;
    read_scores(g, &r, NULL);
}

/* Latents (B, J, width) and rotary keys (B, J, rope, D) asked as they are: those heads that read
 * latents as keys, then those that do not. */
static dra_value read_latent(dra_graph *g, const dra_read_call *c, dra_value latent, dra_value rope)
{
    const dra_memory_sizes *s = c->sizes;
    const dra_shape         shape = dra_shape_of(g, latent);
    const int64_t           B = shape.dim[0], J = shape.dim[1], n = s->Q - s->rope;
    const dra_value         q = rotate_tokens(g, c, c->q, false);
    const dra_value         one = dra_reshape(g, latent, DRA_SHAPE(B, J, 1, s->latent));
    dra_value               y[2];
    reading                 r = open_reading(g, c, dra_latent_query(g, c, q), one, one);
    if (!(r.config.scale > 0)) r.config.scale = 1 / sqrt((double)s->D);
    y[0] = swap_heads(g, attend_items(g, &r));
    if (s->rope && !dra_graph_failed(g)) {
        r = open_reading(g, c, dra_slice(g, q, 2, n, s->rope), rope,
                         dra_broadcast(g, one, DRA_SHAPE(B, J, s->rope, s->latent)));
        y[1] = swap_heads(g, attend_items(g, &r));
    }
    return dra_latent_value(g, c, s->rope ? dra_concat(g, 2, y, 2) : y[0]);
}

/* Items of the state and of this call: keys and values, or latents and rotary keys. */
static void append_items(dra_graph *g, const dra_read_call *c, dra_value key, dra_value value,
                         dra_value item[2], dra_value *state_out)
{
    const dra_memory_sizes *s = c->sizes;
    const dra_tokens       *t = c->tokens;
    item[0] = item[1] = (dra_value){0};
    if (s->joined) {
        item[K] = append_rows(g, c, K, key, (dra_value){0}, state_out);
        item[V] = item[K];
        return;
    }
    if (!s->latent) {
        const dra_value xl_k = rotate_memory(g, c, c->options->xl_k);
        const dra_value xl_v = exponential_value(g, c, c->options->xl_v);
        item[K] = append_rows(g, c, K, rotate_tokens(g, c, key, true), xl_k, state_out);
        item[V] = append_rows(g, c, V, exponential_value(g, c, value), xl_v, state_out);
        return;
    }
    value = dra_reshape(g, value, DRA_SHAPE(t->B, t->T, s->latent));
    item[LATENT] = append_rows(g, c, LATENT, value, (dra_value){0}, state_out);
    if (s->rope)
        item[ROPE] = append_rows(g, c, ROPE, rotate_tokens(g, c, key, true), (dra_value){0},
                                 state_out);
}

dra_value dra_read_items(dra_graph *g, const dra_read_call *c, dra_value key, dra_value value,
                         dra_value *lse, dra_value *state_out)
{
    dra_value  item[2];
    const bool merges = c->options->config->attention.mem_kv > 0;
    dra_value  own = {0};
    append_items(g, c, key, value, item, state_out);
    if (dra_graph_failed(g)) return (dra_value){0};
    if (c->sizes->latent && !c->sums && dra_latent_absorbs(c))
        return read_latent(g, c, item[LATENT], item[ROPE]);
    if (c->sizes->latent)
        dra_latent_expand(g, c, clear_latents(g, c, widen_items(g, item[LATENT])),
                          widen_items(g, item[ROPE]), &item[K], &item[V]);
    const dra_value q = c->sizes->joined ? c->slot_q : c->q;
    reading         r = open_reading(g, c, rotate_tokens(g, c, q, false), item[K], item[V]);
    if (c->sizes->joined && !(r.config.scale > 0)) r.config.scale = 1 / sqrt((double)c->sizes->D);
    if (c->options->level.id) {
        r.config.q_level = swap_heads(g, c->options->level);
        r.config.k_level = swap_heads(g, append_rows(g, c, levels_at(c->sizes), c->options->level,
                                                     (dra_value){0}, state_out));
    }
    if (dra_attention_holds_scores(&c->options->config->attention) || (c->sums && merges))
        return swap_heads(g, read_scores(g, &r, state_out));
    if (c->scores) show_scores(g, r);
    r.config.lse = merges ? &own : lse ? lse : c->sums;
    if (merges) r.config.sink = (dra_value){0}; /* it joins both */
    const dra_value y = attend_items(g, &r);
    return swap_heads(g, merges ? merge_memory(g, &r, y, own) : y);
}

/* y (B, T, H, E), where nothing is seen the mean of all values so far. */
static dra_value fill_unseen(dra_graph *g, const dra_read_call *c, dra_value y,
                             dra_value *state_out)
{
    const dra_memory_sizes *s = c->sizes;
    const dra_tokens       *t = c->tokens;
    const int64_t           n = s->H * s->E;
    const int               at = levels_at(s) + s->levels;
    if (!s->mean || dra_graph_failed(g)) return y;
    const dra_value x[] = {dra_reshape(g, c->value, DRA_SHAPE(t->B, t->T, n)),
                           dra_broadcast(g, dra_number(g, 1), DRA_SHAPE(t->B, t->T, 1))};
    const dra_value sums = dra_running_sum(g, dra_concat(g, 2, x, 2), c->state[at], t->mark,
                                           &state_out[at]);
    const dra_value all = dra_sum(g, sums, (dra_axes){1, {3}, false});
    const dra_value count = dra_maximum(g, dra_slice(g, all, 2, n, 1), dra_number(g, 1));
    const dra_value mean = dra_div(g, dra_slice(g, all, 2, 0, n), count);
    const dra_value sees = dra_less(g, rows_of(c)->lo, rows_of(c)->hi);
    return dra_select(g, dra_reshape(g, sees, DRA_SHAPE(t->B, t->T, 1, 1)), y,
                      dra_reshape(g, mean, DRA_SHAPE(t->B, t->T, s->H, s->E)));
}

static dra_value read_time(dra_graph *g, const dra_read_call *c, dra_value *state_out)
{
    dra_value y = dra_read_items(g, c, c->key, c->value, NULL, state_out);
    y = fill_unseen(g, c, logarithm_read(g, c, y), state_out);
    return c->sizes->joined ? dra_head_linear(g, y, c->nu) : y;
}

static const dra_part *const parts[] = {&dra_attention_part, &dra_qk_norm_part, &dra_rotary_part,
                                        &dra_score_scale_part, NULL};
const dra_retrieval          dra_retrieval_time = {.name = "time",
                                                   .declare = dra_items_declare,
                                                   .read = read_time,
                                                   .over_time = true,
                                                   .from_memory = true,
                                                   .parts = parts};
const dra_retrieval          dra_retrieval_window = {.name = "window",
                                                     .declare = dra_items_declare,
                                                     .read = read_time,
                                                     .over_time = true,
                                                     .from_memory = true,
                                                     .parts = parts};
