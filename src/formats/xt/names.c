/* Names of parameters in x-transformers: they depend on options, so the table is made for a config.
 * Sublayer i has the prefix attn_layers.layers.i., in it 0. has norms, 1. the block, 2. the
 * residual; a stack by itself has no attn_layers. Rules of parameters that a model does not have do
 * no harm. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "formats/xt/xt.h"

enum { PREFIX = 120, PER_SUBLAYER = 68, OTHERS = 68 };

typedef struct making {
    dra_name_rules         *out;
    const dra_model_config *c;
    dra_name_rule          *row; /* `most` of them, and one more that ends the table */
    int64_t                 n, most;
    const char             *from, *to;                    /* what names of this stack begin with */
    const char             *layers;                       /* and those inside of it there */
    char                    ours[PREFIX], theirs[PREFIX]; /* what names begin with */
    dra_name_rule           none;
} making;

typedef struct pair {
    const char *ours, *theirs;
} pair;

static char *join_names(making *m, const char *prefix, const char *name)
{
    char text[DRA_TENSOR_NAME];
    snprintf(text, sizeof text, "%s%s", prefix, name);
    return dra_arena_text(&m->out->arena, text);
}

/* The new row, or one that nobody reads when there is no memory. */
static dra_name_rule *add_rule(making *m, const char *ours, const char *theirs)
{
    char *a = join_names(m, m->ours, ours), *b = join_names(m, m->theirs, theirs);
    if (!a || !b || m->n == m->most) {
        m->most = -1;
        return &m->none;
    }
    dra_name_rule *r = &m->row[m->n++];
    *r = (dra_name_rule){.ours = a, .theirs = b};
    return r;
}

static void add_all(making *m, const pair *p)
{
    for (; p->ours; p++) add_rule(m, p->ours, p->theirs);
}

static void add_part(making *m, const char *ours, const char *theirs, int part)
{
    dra_name_rule *r = add_rule(m, ours, theirs);
    r->part = part;
    r->parts = 2;
}

/* ---- sublayers ------------------------------------------------------------------------------- */

/* What names begin with from here on. */
static void begin_names(making *m, const char *ours, const char *theirs)
{
    snprintf(m->ours, sizeof m->ours, "%s%s", m->from, ours);
    snprintf(m->theirs, sizeof m->theirs, "%s%s", m->to, theirs);
}

/* A norm's gain by the name that its kind gives it. */
static void add_norm(making *m, const char *ours, const char *place)
{
    char name[PREFIX], own[40];
    if (m->c->norm_gain == DRA_GAIN_CONDITION) { /* "norm_g" is "norm_W" */
        snprintf(own, sizeof own, "%.*sW", (int)strlen(ours) - 1, ours);
        snprintf(name, sizeof name, "%sto_gamma.weight", place);
        add_rule(m, own, name);
        return;
    }
    const bool        tanh = m->c->norm == DRA_NORM_TANH;
    const char *const gain = m->c->norm == DRA_NORM_LAYER || tanh ? "gamma" : "g";
    snprintf(name, sizeof name, "%s%s", place, gain);
    add_rule(m, ours, name);
    if (!tanh) return;
    snprintf(own, sizeof own, "%.*sb", (int)strlen(ours) - 1, ours);
    snprintf(name, sizeof name, "%sbeta", place);
    add_rule(m, own, name);
    snprintf(own, sizeof own, "%.*sa", (int)strlen(ours) - 1, ours);
    snprintf(name, sizeof name, "%spre_tanh_scale", place);
    add_rule(m, own, name)->loose = true;
}

static void add_around(making *m)
{
    static const pair residual[] = {{"residual_scale", "2.residual_scale"},
                                    {"gru_W_i", "2.gru.weight_ih"},
                                    {"gru_W_h", "2.gru.weight_hh"},
                                    {"gru_b_i", "2.gru.bias_ih"},
                                    {"gru_b_h", "2.gru.bias_hh"},
                                    {"stream_norm_g", "2.norm.weight"},
                                    {"stream_W_a", "2.dynamic_alpha_fn"},
                                    {"stream_a_scale", "2.dynamic_alpha_scale"},
                                    {"stream_a", "2.static_alpha"},
                                    {"stream_w_b", "2.dynamic_beta_fn"},
                                    {"stream_b_scale", "2.dynamic_beta_scale"},
                                    {"stream_b", "2.static_beta"},
                                    {0}};
    add_norm(m, "norm_g", m->c->block.norm == DRA_PLACE_PRE ? "0.0." : "0.2.");
    add_norm(m, "branch_norm_g", "0.1.");
    add_norm(m, "post_norm_g", "0.2.");
    add_rule(m, "branch_scale", "1.gamma");
    add_rule(m, "branch_gate_W", "1.to_gamma.weight");
    add_rule(m, "branch_gate_b", "1.to_gamma.bias");
    add_all(m, residual);
}

static void add_attention(making *m, const dra_mixer_config *mixer)
{
    static const pair  plain[] = {{"W_q", "to_q.weight"},
                                  {"W_k", "to_k.weight"},
                                  {"W_v", "to_v.weight"},
                                  {"mem_k", "mem_k"},
                                  {"mem_v", "mem_v"},
                                  {"W_g", "to_v_gate.weight"},
                                  {"b_g", "to_v_gate.bias"},
                                  {"W_g_1", "to_v_gate.down.weight"},
                                  {"W_g_2", "to_v_gate.up.weight"},
                                  {"W_go", "to_output_gate.weight"},
                                  {"W_go_1", "to_output_gate.down.weight"},
                                  {"W_go_2", "to_output_gate.up.weight"},
                                  {"sink", "attend.head_attn_sink"},
                                  {"W_c", "to_latent_kv.weight"},
                                  {"W_cq", "to_latent_q.weight"},
                                  {"W_kr", "to_rotateable_k.weight"},
                                  {"W_f", "data_dependent_alibi.to_forget_gates.0.weight"},
                                  {"b_f", "data_dependent_alibi.to_forget_gates.0.bias"},
                                  {"W_hg", "to_v_head_gate.weight"},
                                  {"b_hg", "to_v_head_gate.bias"},
                                  {"cope", "attend.cope.pos_emb"},
                                  {"W_mix", "to_value_residual_mix.0.weight"},
                                  {"b_mix", "to_value_residual_mix.0.bias"},
                                  {0}};
    const dra_xt_sizes s = dra_xt_mixer_sizes(m->c, mixer);
    add_all(m, plain);
    add_rule(m, "W_o", mixer->out_glu ? "to_out.0.weight" : "to_out.weight");
    add_rule(m, "gain_q", "qk_norm_q_scale")->shape = DRA_SHAPE(s.H, 1, s.d);
    add_rule(m, "gain_k", "qk_norm_k_scale")->shape = DRA_SHAPE(s.K, 1, s.d);
    add_rule(m, "head_scale", "head_scale_params")->shape = DRA_SHAPE(1, s.H, 1, 1);
    add_rule(m, "talk_before", "attend.pre_softmax_talking_heads.weight")->shape = DRA_SHAPE(
        s.H, s.H, 1, 1);
    add_rule(m, "talk_after", "attend.post_softmax_talking_heads.weight")->shape = DRA_SHAPE(
        s.H, s.H, 1, 1);
}

/* Of a gated one the first half of the projection is the value, the second the gate. */
static void add_ff(making *m)
{
    static const pair plain[] = {{"W_up", "ff.0.0.weight"}, {"b_up", "ff.0.0.bias"}, {0}};
    static const pair out[] = {{"W_down", "ff.2.weight"}, {"b_down", "ff.2.bias"}, {0}};
    static const pair normed[] = {
        {"act_norm_g", "ff.1.gamma"}, {"W_down", "ff.3.weight"}, {"b_down", "ff.3.bias"}, {0}};
    if (m->c->ff.gated) {
        add_part(m, "W_up", "ff.0.proj.weight", 0);
        add_part(m, "W_gate", "ff.0.proj.weight", 1);
        add_part(m, "b_up", "ff.0.proj.bias", 0);
        add_part(m, "b_gate", "ff.0.proj.bias", 1);
        add_rule(m, "gate_scale", "ff.0.mult_bias");
    } else {
        add_all(m, plain);
    }
    add_all(m, m->c->ff.act_norm ? normed : out);
}

/* Sublayer i, which dra calls layers.N.mixer, layers.N.cross or layers.N.ff. */
static void add_sublayer(making *m, int64_t i, int64_t N, char letter)
{
    const dra_model_config *c = m->c;
    const int64_t           shift = c->n_shifts ? c->shifts[i] : c->block.shift;
    const char             *scale = c->block.branch_scale || c->block.branch_gate ? "fn." : "";
    const char             *fn = shift > 0 ? "fn." : "";
    const char             *half = c->block.macaron && letter == 'f' ? "fn." : "";
    const char             *kind = letter == 'a' ? "mixer" : letter == 'c' ? "cross" : "ff";
    static const pair       integrate[] = {
              {"integrate_g", "0.g"}, {"integrate_W", "1.weight"}, {"integrate_b", "1.bias"}, {0}};
    char ours[40], theirs[80];
    snprintf(ours, sizeof ours, "layers.%lld.%s.", (long long)N, kind);
    snprintf(theirs, sizeof theirs, "%slayers.%lld.", m->layers, (long long)i);
    begin_names(m, ours, theirs);
    add_around(m);
    snprintf(theirs, sizeof theirs, "%slayer_integrators.%lld.to_weights.", m->layers,
             (long long)i);
    begin_names(m, ours, theirs);
    add_all(m, integrate);
    snprintf(theirs, sizeof theirs, "%slayers.%lld.1.%s%s%s", m->layers, (long long)i, scale, fn,
             half);
    begin_names(m, ours, theirs);
    if (letter == 'f')
        add_ff(m);
    else
        add_attention(m, letter == 'a' ? &c->mixer[0] : c->cross);
}

/* Letter i of the sublayers, `n` in all: attention `k` times, blocks, feed-forward `k` times. */
static char sublayer_letter(const char *block, int64_t i, int64_t n, int64_t k)
{
    if (i < k) return 'a';
    return i >= n - k ? 'f' : block[(i - k) % (int64_t)strlen(block)];
}

static const char *block_of(const dra_model_config *c)
{
    const bool cross = c->context_stack != NULL;
    if (c->layout[0]) return c->layout;
    if (c->ff.kind == DRA_FF_NONE) return cross ? "ac" : "a";
    return cross ? "acf" : "af";
}

static int64_t count_sublayers(const dra_model_config *c)
{
    const int64_t block = (int64_t)strlen(block_of(c)), k = c->sandwich;
    return c->tied_layers ? block : 2 * k + block * (c->depth - k);
}

static void add_sublayers(making *m)
{
    const int64_t n = count_sublayers(m->c);
    int64_t       N = 0;
    bool          taken[128] = {0}; /* by letter: layer N has one */
    for (int64_t i = 0; i < n; i++) {
        const char kind = sublayer_letter(block_of(m->c), i, n, m->c->sandwich);
        if (taken[(int)kind]) {
            N++;
            memset(taken, 0, sizeof taken);
        }
        taken[(int)kind] = true;
        add_sublayer(m, i, N, kind);
    }
}

/* ---- the rest -------------------------------------------------------------------------------- */

/* The table of positions of an image, its register tokens, its classes. */
static void add_image(making *m)
{
    static const pair names[] = {{"patch_norm_g", "patch_to_embedding.0.gamma"},
                                 {"patch_w", "patch_to_embedding.1.weight"},
                                 {"patch_b", "patch_to_embedding.1.bias"},
                                 {"patch_out_norm_g", "patch_to_embedding.2.gamma"},
                                 {"memory_tokens", "register_tokens"},
                                 {"head", "mlp_head.weight"},
                                 {"head_b", "mlp_head.bias"},
                                 {0}};
    if (m->c->source.kind != DRA_SOURCE_IMAGE) return;
    add_rule(m, "positions", "pos_embedding")->ones = 1;
    add_all(m, names);
}

static void add_vectors(making *m)
{
    static const pair names[] = {
        {"source_w", "project_in.weight"}, {"head", "project_out.weight"}, {0}};
    if (m->c->source.kind == DRA_SOURCE_VECTORS) add_all(m, names);
}

/* Of a U-Net: one for each block of the latter half, by the number of its first sublayer. */
static void add_skips(making *m)
{
    char ours[40], theirs[60];
    for (int64_t l = (m->c->depth + 1) / 2; m->c->unet && l < m->c->depth; l++) {
        snprintf(ours, sizeof ours, "layers.%lld.skip_W", (long long)l);
        snprintf(theirs, sizeof theirs, "skip_combines.%lld.combine.weight", 2 * (long long)l);
        add_rule(m, ours, theirs);
    }
}

/* The first rule of a name counts: those of images and vectors are added before. */
static void add_wrapper(making *m)
{
    static const pair names[] = {{"embedding", "token_emb.emb.weight"},
                                 {"positions", "pos_emb.emb.weight"},
                                 {"embed_norm_g", "post_emb_norm.gamma"},
                                 {"embed_project_w", "project_emb.weight"},
                                 {"embed_project_b", "project_emb.bias"},
                                 {"memory_tokens", "memory_tokens"},
                                 {"cls_token", "cls_token"},
                                 {"head", "to_logits.weight"},
                                 {"mixture_W", "to_mixture.0.weight"},
                                 {"mixture_w", "combine_mixture.weight"},
                                 {"recycle_W", "recycled_proj.weight"},
                                 {"head_b", "to_logits.bias"},
                                 {"numbers_w", "to_numerical_output.0.weight"},
                                 {"numbers_b", "to_numerical_output.0.bias"},
                                 {0}};
    begin_names(m, "", "");
    add_image(m);
    add_vectors(m);
    add_all(m, names);
    begin_names(m, "", m->layers);
    add_rule(m, "position.table", "rel_pos.relative_attention_bias.weight");
    add_rule(m, "streams", "stream_emb");
    add_rule(m, "reinject_W", "reinject_input_proj.weight");
    add_rule(m, "reinject_gate", "learned_reinject_input_gate.weight");
    add_rule(m, "condition_w", "adaptive_mlp.0.weight");
    add_norm(m, "norm_g", "final_norm.");
    add_skips(m);
}

/* The network of the dynamic bias: the last of its layers has no activation after it. */
static void add_distance(making *m)
{
    const int64_t L = m->c->position.dynamic.layers ? m->c->position.dynamic.layers : 2;
    char          ours[40], theirs[60];
    for (int64_t k = 0; k <= L && m->c->position.distance == DRA_DISTANCE_DYNAMIC; k++) {
        snprintf(ours, sizeof ours, "position.%lld.", (long long)k);
        snprintf(theirs, sizeof theirs, "%srel_pos.mlp.%lld.%s", m->layers, (long long)k,
                 k < L ? "0." : "");
        begin_names(m, ours, theirs);
        add_rule(m, "W", "weight");
        add_rule(m, "b", "bias");
    }
}

/* Buffers: frequencies of rotations, and what xPos scales pairs of channels by. */
static void add_constants(making *m)
{
    static const char *const names[] = {"rotary_pos_emb.inv_freq", "rotary_pos_emb.scale"};
    const double             r = (double)dra_xt_rotary(m->c);
    const int64_t            n = (dra_xt_rotary(m->c) + 1) / 2;
    const int                count = !n ? 0 : m->c->position.rotate == DRA_ROTATE_XPOS ? 2 : 1;
    begin_names(m, "", m->layers);
    for (int i = 0; i < count && m->out->constants < DRA_CONSTANTS_MOST; i++) {
        dra_real *data = dra_arena_alloc(&m->out->arena, (size_t)n * sizeof *data);
        char     *name = join_names(m, m->theirs, names[i]);
        if (!data || !name) m->most = -1;
        for (int64_t c = 0; c < n && data; c++) {
            const double at = 2 * (double)c;
            data[c] = (dra_real)(i ? (at + 0.4 * r) / (1.4 * r) : pow(10000, -at / r));
        }
        m->out->constant[m->out->constants++] = (dra_constant){name, n, data};
    }
}

/* ---- stacks ---------------------------------------------------------------------------------- */

static void add_stack(making *m, const dra_model_config *c, const char *ours, const char *theirs)
{
    const bool bare = c->source.kind == DRA_SOURCE_VECTORS && c->head.kind == DRA_HEAD_NONE;
    m->c = c;
    m->from = ours;
    m->to = theirs;
    m->layers = bare ? "" : "attn_layers.";
    if (!c->depth) return; /* vectors as they are given */
    add_wrapper(m);
    add_distance(m);
    add_sublayers(m);
    add_constants(m);
}

/* One table for both sides has the names of both. */
static void share_table(making *m, const char *ours)
{
    char name[DRA_TENSOR_NAME];
    snprintf(name, sizeof name, "%sembedding", ours);
    for (int64_t i = 0; i < m->n; i++)
        if (strcmp(m->row[i].ours, name) == 0)
            m->row[i].also = m->row[i].instead = join_names(m, "decoder.net.",
                                                            "token_emb.emb.weight");
}

/* Names of a model begin with those of its place among others, and in a loss. */
static void add_stacks(making *m, const dra_model_config *c)
{
    const dra_model_config *from = c->context_stack, *first = from ? from->prepend_stack : NULL;
    const bool              joined = from && from->depth;
    const bool              loss = c->xt.loss || dra_xt_wrapper_of(c) == DRA_XT_PAIR;
    char                    own[PREFIX], ours[PREFIX], more[PREFIX];
    snprintf(own, sizeof own, "%s%s", joined ? "decoder." : "", loss ? "net." : "");
    add_stack(m, c, "", own);
    if (!joined) return;
    snprintf(ours, sizeof ours, "%s.", dra_xt_stack_name(from, "encoder"));
    add_stack(m, from, ours, "encoder.");
    if (c->source.shared) share_table(m, ours);
    if (!first) return;
    snprintf(more, sizeof more, "%.60s%s.", ours, dra_xt_stack_name(first, "prepend"));
    add_stack(m, first, more, "vit.");
}

static int64_t count_rows(const dra_model_config *c)
{
    int64_t n = OTHERS + (c->depth ? PER_SUBLAYER * count_sublayers(c) : 0);
    if (c->context_stack) n += count_rows(c->context_stack);
    return c->prepend_stack ? n + count_rows(c->prepend_stack) : n;
}

dra_status dra_xt_rules(const dra_model_config *c, dra_name_rules *out, dra_error *err)
{
    making m = {.out = out, .c = c};
    m.most = count_rows(c);
    m.row = dra_arena_alloc(&out->arena, (size_t)(m.most + 1) * sizeof *m.row);
    out->row = m.row;
    if (!m.row) return dra_fail(err, DRA_ERR_MEMORY, "x-transformers: out of memory");
    add_stacks(&m, c);
    if (m.most < 0) return dra_fail(err, DRA_ERR_MEMORY, "x-transformers: out of memory");
    return DRA_OK;
}
