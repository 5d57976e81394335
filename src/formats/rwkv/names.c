/* RWKV's tensors by name: those of the original checkpoints, which rwkv.cpp keeps but for some of
 * its own layouts, of the classes that come with models of Hugging Face, of flash-linear-attention
 * (fla), and of GGUF. The receptance is what reads: q.
 * Low-rank factors are stored (in, rank), (rank, out) in the originals; here and in all others but
 * those classes they are (out, in) as all matrices.
 * [https://github.com/BlinkDL/RWKV-LM, https://github.com/RWKV/rwkv.cpp,
 *  https://github.com/fla-org/flash-linear-attention] */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "formats/rwkv/rwkv.h"

/* ---- one tensor, one parameter --------------------------------------------------------------- */

typedef enum form {
    PLAIN,
    VECTOR, /* of channels: (1, 1, C) in the originals                             */
    HEADS,  /* (H) or (H, D) of each head: as it is, in rwkv.cpp with three axes   */
    KEYS,   /* (H, D) as it is, in GGUF (H D)                                      */
    FLAT,   /* (H, D) of all channels of heads: (1, 1, H D), in fla, GGUF (H D)    */
    FACTOR  /* of low rank                                                         */
} form;

typedef struct row {
    int         from, to; /* versions that have it */
    form        form;
    const char *ours, *original, *hf, *fla, *gguf; /* hf, fla: after their prefixes; NULL: none */
} row;

static const row rows[] = {
    {4, 7, PLAIN, "embedding", "emb.weight", "embeddings.weight", "embeddings.weight",
     "token_embd.weight"},
    {4, 7, PLAIN, "embed_norm_g", "blocks.0.ln0.weight", "blocks.0.pre_ln.weight",
     "layers.0.pre_norm.weight", "token_embd_norm.weight"},
    {4, 7, PLAIN, "embed_norm_b", "blocks.0.ln0.bias", "blocks.0.pre_ln.bias",
     "layers.0.pre_norm.bias", "token_embd_norm.bias"},
    {4, 7, PLAIN, "layers.*.mixer.norm_g", "blocks.*.ln1.weight", "blocks.*.ln1.weight",
     "layers.*.attn_norm.weight", "blk.*.attn_norm.weight"},
    {4, 7, PLAIN, "layers.*.mixer.norm_b", "blocks.*.ln1.bias", "blocks.*.ln1.bias",
     "layers.*.attn_norm.bias", "blk.*.attn_norm.bias"},
    {4, 4, PLAIN, "layers.*.mixer.time_decay", "blocks.*.att.time_decay",
     "blocks.*.attention.time_decay", NULL},
    {4, 4, PLAIN, "layers.*.mixer.time_first", "blocks.*.att.time_first",
     "blocks.*.attention.time_first", NULL},
    {5, 5, HEADS, "layers.*.mixer.time_decay", "blocks.*.att.time_decay",
     "blocks.*.attention.time_decay", NULL},
    {6, 6, FLAT, "layers.*.mixer.time_decay", "blocks.*.att.time_decay",
     "blocks.*.attention.time_decay", "layers.*.attn.w_proj.linear.lora.2.bias",
     "blk.*.time_mix_decay.weight"},
    {7, 7, FLAT, "layers.*.mixer.time_decay", "blocks.*.att.w0", NULL,
     "layers.*.attn.w_lora.lora.2.bias", "blk.*.time_mix_w0.weight"},
    {5, 5, HEADS, "layers.*.mixer.time_first", "blocks.*.att.time_first", NULL, NULL},
    {5, 6, HEADS, "layers.*.mixer.bonus", "blocks.*.att.time_faaaa",
     "blocks.*.attention.time_faaaa", "layers.*.attn.bonus", "blk.*.time_mix_first.weight"},
    {6, 6, FACTOR, "layers.*.mixer.W_decay_1", "blocks.*.att.time_decay_w1",
     "blocks.*.attention.time_decay_w1", "layers.*.attn.w_proj.linear.lora.0.weight",
     "blk.*.time_mix_decay_w1.weight"},
    {6, 6, FACTOR, "layers.*.mixer.W_decay_2", "blocks.*.att.time_decay_w2",
     "blocks.*.attention.time_decay_w2", "layers.*.attn.w_proj.linear.lora.2.weight",
     "blk.*.time_mix_decay_w2.weight"},
    {7, 7, FACTOR, "layers.*.mixer.W_decay_1", "blocks.*.att.w1", NULL,
     "layers.*.attn.w_lora.lora.0.weight", "blk.*.time_mix_w1.weight"},
    {7, 7, FACTOR, "layers.*.mixer.W_decay_2", "blocks.*.att.w2", NULL,
     "layers.*.attn.w_lora.lora.2.weight", "blk.*.time_mix_w2.weight"},
    {4, 5, VECTOR, "layers.*.mixer.mu_k", "blocks.*.att.time_mix_k",
     "blocks.*.attention.time_mix_key", NULL},
    {4, 5, VECTOR, "layers.*.mixer.mu_v", "blocks.*.att.time_mix_v",
     "blocks.*.attention.time_mix_value", NULL},
    {4, 5, VECTOR, "layers.*.mixer.mu_q", "blocks.*.att.time_mix_r",
     "blocks.*.attention.time_mix_receptance", NULL},
    {5, 5, VECTOR, "layers.*.mixer.mu_g", "blocks.*.att.time_mix_g",
     "blocks.*.attention.time_mix_gate", NULL},
    {6, 6, VECTOR, "layers.*.mixer.mu_x", "blocks.*.att.time_maa_x",
     "blocks.*.attention.time_maa_x", "layers.*.attn.x_proj.0.mu", "blk.*.time_mix_lerp_x.weight"},
    {4, 6, PLAIN, "layers.*.mixer.W_k", "blocks.*.att.key.weight", "blocks.*.attention.key.weight",
     "layers.*.attn.k_proj.linear.weight", "blk.*.time_mix_key.weight"},
    {4, 6, PLAIN, "layers.*.mixer.W_v", "blocks.*.att.value.weight",
     "blocks.*.attention.value.weight", "layers.*.attn.v_proj.linear.weight",
     "blk.*.time_mix_value.weight"},
    {4, 6, PLAIN, "layers.*.mixer.W_q", "blocks.*.att.receptance.weight",
     "blocks.*.attention.receptance.weight", "layers.*.attn.r_proj.linear.weight",
     "blk.*.time_mix_receptance.weight"},
    {5, 6, PLAIN, "layers.*.mixer.W_g", "blocks.*.att.gate.weight",
     "blocks.*.attention.gate.weight", "layers.*.attn.g_proj.linear.weight",
     "blk.*.time_mix_gate.weight"},
    {7, 7, PLAIN, "layers.*.mixer.W_k", "blocks.*.att.key.weight", NULL,
     "layers.*.attn.k_proj.weight", "blk.*.time_mix_key.weight"},
    {7, 7, PLAIN, "layers.*.mixer.W_v", "blocks.*.att.value.weight", NULL,
     "layers.*.attn.v_proj.weight", "blk.*.time_mix_value.weight"},
    {7, 7, PLAIN, "layers.*.mixer.W_q", "blocks.*.att.receptance.weight", NULL,
     "layers.*.attn.r_proj.weight", "blk.*.time_mix_receptance.weight"},
    {4, 7, PLAIN, "layers.*.mixer.W_o", "blocks.*.att.output.weight",
     "blocks.*.attention.output.weight", "layers.*.attn.o_proj.weight",
     "blk.*.time_mix_output.weight"},
    {5, 7, PLAIN, "layers.*.mixer.hn_g", "blocks.*.att.ln_x.weight",
     "blocks.*.attention.ln_x.weight", "layers.*.attn.g_norm.weight", "blk.*.time_mix_ln.weight"},
    {5, 7, PLAIN, "layers.*.mixer.hn_b", "blocks.*.att.ln_x.bias", "blocks.*.attention.ln_x.bias",
     "layers.*.attn.g_norm.bias", "blk.*.time_mix_ln.bias"},
    {7, 7, FACTOR, "layers.*.mixer.W_rate_1", "blocks.*.att.a1", NULL,
     "layers.*.attn.a_lora.lora.0.weight", "blk.*.time_mix_a1.weight"},
    {7, 7, FACTOR, "layers.*.mixer.W_rate_2", "blocks.*.att.a2", NULL,
     "layers.*.attn.a_lora.lora.2.weight", "blk.*.time_mix_a2.weight"},
    {7, 7, FLAT, "layers.*.mixer.b_rate", "blocks.*.att.a0", NULL,
     "layers.*.attn.a_lora.lora.2.bias", "blk.*.time_mix_a0.weight"},
    {7, 7, FACTOR, "layers.*.mixer.W_mix_1", "blocks.*.att.v1", NULL,
     "layers.*.attn.v_lora.lora.0.weight", "blk.*.time_mix_v1.weight"},
    {7, 7, FACTOR, "layers.*.mixer.W_mix_2", "blocks.*.att.v2", NULL,
     "layers.*.attn.v_lora.lora.2.weight", "blk.*.time_mix_v2.weight"},
    {7, 7, FLAT, "layers.*.mixer.b_mix", "blocks.*.att.v0", NULL,
     "layers.*.attn.v_lora.lora.2.bias", "blk.*.time_mix_v0.weight"},
    {7, 7, FACTOR, "layers.*.mixer.W_g_1", "blocks.*.att.g1", NULL,
     "layers.*.attn.g_lora.lora.0.weight", "blk.*.time_mix_g1.weight"},
    {7, 7, FACTOR, "layers.*.mixer.W_g_2", "blocks.*.att.g2", NULL,
     "layers.*.attn.g_lora.lora.2.weight", "blk.*.time_mix_g2.weight"},
    {7, 7, FLAT, "layers.*.mixer.k_k", "blocks.*.att.k_k", NULL, "layers.*.attn.k_k",
     "blk.*.time_mix_k_k.weight"},
    {7, 7, FLAT, "layers.*.mixer.k_a", "blocks.*.att.k_a", NULL, "layers.*.attn.k_a",
     "blk.*.time_mix_k_a.weight"},
    {7, 7, KEYS, "layers.*.mixer.r_k", "blocks.*.att.r_k", NULL, "layers.*.attn.r_k",
     "blk.*.time_mix_r_k.weight"},
    {4, 7, PLAIN, "layers.*.ff.norm_g", "blocks.*.ln2.weight", "blocks.*.ln2.weight",
     "layers.*.ffn_norm.weight", "blk.*.attn_norm_2.weight"},
    {4, 7, PLAIN, "layers.*.ff.norm_b", "blocks.*.ln2.bias", "blocks.*.ln2.bias",
     "layers.*.ffn_norm.bias", "blk.*.attn_norm_2.bias"},
    {4, 5, VECTOR, "layers.*.ff.mu_k", "blocks.*.ffn.time_mix_k",
     "blocks.*.feed_forward.time_mix_key", NULL},
    {4, 5, VECTOR, "layers.*.ff.mu_r", "blocks.*.ffn.time_mix_r",
     "blocks.*.feed_forward.time_mix_receptance", NULL},
    {6, 6, VECTOR, "layers.*.ff.mu_k", "blocks.*.ffn.time_maa_k",
     "blocks.*.feed_forward.time_maa_k", "layers.*.ffn.key.mu", "blk.*.channel_mix_lerp_k.weight"},
    {6, 6, VECTOR, "layers.*.ff.mu_r", "blocks.*.ffn.time_maa_r",
     "blocks.*.feed_forward.time_maa_r", "layers.*.ffn.receptance.mu",
     "blk.*.channel_mix_lerp_r.weight"},
    {7, 7, VECTOR, "layers.*.ff.mu_k", "blocks.*.ffn.x_k", NULL, "layers.*.ffn.x_k",
     "blk.*.channel_mix_lerp_k.weight"},
    {4, 6, PLAIN, "layers.*.ff.W_up", "blocks.*.ffn.key.weight", "blocks.*.feed_forward.key.weight",
     "layers.*.ffn.key.linear.weight", "blk.*.channel_mix_key.weight"},
    {7, 7, PLAIN, "layers.*.ff.W_up", "blocks.*.ffn.key.weight", NULL, "layers.*.ffn.key.weight",
     "blk.*.channel_mix_key.weight"},
    {4, 6, PLAIN, "layers.*.ff.W_r", "blocks.*.ffn.receptance.weight",
     "blocks.*.feed_forward.receptance.weight", "layers.*.ffn.receptance.linear.weight",
     "blk.*.channel_mix_receptance.weight"},
    {4, 7, PLAIN, "layers.*.ff.W_down", "blocks.*.ffn.value.weight",
     "blocks.*.feed_forward.value.weight", "layers.*.ffn.value.weight",
     "blk.*.channel_mix_value.weight"},
    {4, 7, PLAIN, "norm_g", "ln_out.weight", "ln_out.weight", "norm.weight", "output_norm.weight"},
    {4, 7, PLAIN, "norm_b", "ln_out.bias", "ln_out.bias", "norm.bias", "output_norm.bias"},
    {4, 7, PLAIN, "head", "head.weight", "head.weight", "lm_head.weight", "output.weight"},
};

const char *const dra_rwkv_ignored[] = {"blocks.0.att.v0", "blocks.0.att.v1", "blocks.0.att.v2",
                                        NULL};

typedef struct speech { /* who speaks of which version, and where rules go */
    int            version;
    dra_dialect    dialect;
    bool           fla, gguf;
    int64_t        rescale; /* rescale_every of the config */
    dra_arena     *arena;
    dra_name_rule *rule;
    int            n;
} speech;

enum { ROWS = sizeof rows / sizeof *rows, MORE = 24 };

static bool is_original(const speech *s)
{
    return s->dialect == DRA_DIALECT_ORIGINAL || s->dialect == DRA_DIALECT_CPP;
}

/* rwkv.cpp has e^ of these in versions 4 and 5. */
static dra_stored_as stored_as(const speech *s, const char *ours)
{
    const bool decay = strstr(ours, "time_decay") != NULL;
    if (s->dialect != DRA_DIALECT_CPP || s->version > 5) return DRA_AS_IT_IS;
    if (decay) return s->version == 4 ? DRA_AS_NEG_EXP : DRA_AS_DECAY;
    return s->version == 5 && strstr(ours, "time_first") ? DRA_AS_EXP : DRA_AS_IT_IS;
}

static void lay_out(const speech *s, form f, dra_name_rule *r)
{
    const bool cpp = s->dialect == DRA_DIALECT_CPP, bare = s->fla || s->gguf;
    r->loose = f != PLAIN && f != FACTOR;
    switch (f) {
    case VECTOR: r->ones = bare || (cpp && s->version < 7) ? 0 : 2; break;
    case HEADS: r->rank = cpp ? 3 : 0; break;
    case KEYS: r->flat = s->gguf; break;
    case FLAT:
        r->flat = !(cpp && s->version == 6);
        r->rank = r->flat ? 0 : 3;
        r->ones = bare || !r->flat ? 0 : 2;
        break;
    case FACTOR: r->transposed = !bare && !cpp; break;
    default: break;
    }
}

/* In GGUF, matrices that write into the stream are stored divided where it is halved while reading;
 * and layer 0 of version 7, which mixes no values, has copies of its rates for the factors of that
 * mix: none of them is read. */
static void lay_out_gguf(const speech *s, dra_name_rule *r)
{
    static const char *const unread[][2] = {
        {"layers.*.mixer.b_rate", "blk.0.time_mix_v0.weight"},
        {"layers.*.mixer.W_rate_1", "blk.0.time_mix_v1.weight"},
        {"layers.*.mixer.W_rate_2", "blk.0.time_mix_v2.weight"}};
    if (strcmp(r->ours, "layers.*.mixer.W_o") == 0 || strcmp(r->ours, "layers.*.ff.W_down") == 0)
        r->halved_every = s->rescale;
    for (size_t i = 0; i < sizeof unread / sizeof *unread; i++)
        if (strcmp(r->ours, unread[i][0]) == 0) r->unread = unread[i][1];
}

static const char *name_of(const speech *s, const row *r)
{
    return s->gguf ? r->gguf : is_original(s) ? r->original : s->fla ? r->fla : r->hf;
}

static void add_rows(speech *s)
{
    for (int i = 0; i < ROWS; i++) {
        const row  *r = &rows[i];
        const char *name = name_of(s, r);
        if (s->version < r->from || s->version > r->to || !name) continue;
        dra_name_rule *rule = &s->rule[s->n++];
        *rule = (dra_name_rule){.ours = r->ours, .theirs = name, .as = stored_as(s, r->ours)};
        lay_out(s, r->form, rule);
        if (s->gguf) lay_out_gguf(s, rule);
    }
}

/* ---- mixes, which may share a tensor --------------------------------------------------------- */

typedef struct group {
    const char    *ours;   /* with a letter for "?"                              */
    const char    *theirs; /* the same, or one for all                           */
    const char    *order;  /* of parts; letters of the originals, in which q is r */
    dra_part_place place;
    int            ones;
    bool           transposed, shared;
} group;

/* A text in which a letter stands for "?". NULL: no memory. */
static char *spell_letter(dra_arena *a, const char *text, char letter)
{
    char *is = dra_arena_text(a, text), *at = is ? strchr(is, '?') : NULL;
    if (at) *at = letter;
    return is;
}

static bool add_group(speech *s, const group *m)
{
    const int n = (int)strlen(m->order);
    for (int i = 0; i < n; i++) {
        const char letter = m->order[i];
        char      *ours = spell_letter(s->arena, m->ours, letter == 'r' ? 'q' : letter);
        char      *theirs = spell_letter(s->arena, m->theirs, letter);
        if (!ours || !theirs) return false;
        s->rule[s->n++] = (dra_name_rule){.ours = ours,
                                          .theirs = theirs,
                                          .place = m->place,
                                          .part = m->shared ? i : 0,
                                          .parts = m->shared ? n : 0,
                                          .ones = m->ones,
                                          .loose = m->place == DRA_PARTS_FRONT || !m->shared,
                                          .transposed = m->transposed};
    }
    return true;
}

static const char mu[] = "layers.*.mixer.mu_?", first[] = "layers.*.mixer.mu_?_1";
static const char second[] = "layers.*.mixer.mu_?_2";

/* One tensor for all mixes, of older files of version 6 one of each. */
static bool add_gguf_mixes(speech *s)
{
    const char *order = s->version == 7 ? "rwkvag" : "wkvrg";
    const bool  each = s->dialect == DRA_DIALECT_OLD;
    const group mixes = {
        mu,           each ? "blk.*.time_mix_lerp_?.weight" : "blk.*.time_mix_lerp_fused.weight",
        order,        DRA_PARTS_FRONT,
        each ? 0 : 2, .shared = !each};
    if (!add_group(s, &mixes)) return false;
    if (s->version == 7) return true;
    return add_group(s, &(group){first, "blk.*.time_mix_w1.weight", order, DRA_PARTS_OUT,
                                 .shared = true}) &&
           add_group(s, &(group){second, "blk.*.time_mix_w2.weight", order, DRA_PARTS_FRONT,
                                 .shared = true});
}

static bool add_mixes(speech *s)
{
    const bool  cpp = s->dialect == DRA_DIALECT_CPP, own = is_original(s);
    const char *order = s->fla ? "rwkvg" : "wkvrg";
    if (s->gguf) return add_gguf_mixes(s);
    if (s->version == 7 && (cpp || s->dialect == DRA_DIALECT_OLD))
        return add_group(s, &(group){mu, cpp ? "blocks.*.att.x_rwkvag" : "layers.*.attn.x_x",
                                     "rwkvag", DRA_PARTS_FRONT, cpp ? 1 : 0, .shared = true});
    if (s->version == 7)
        return add_group(
            s, &(group){mu, own ? "blocks.*.att.x_?" : "layers.*.attn.x_?", "rwkvag", .ones = 2});
    if (s->version != 6) return true;
    if (s->fla)
        return add_group(s, &(group){mu, "layers.*.attn.x_bias", order, DRA_PARTS_FRONT,
                                     .shared = true}) &&
               add_group(s, &(group){first, "layers.*.attn.x_proj.0.linear.weight", order,
                                     DRA_PARTS_OUT, .shared = true}) &&
               add_group(s, &(group){second, "layers.*.attn.x_proj.2.weight", order, DRA_PARTS_IN,
                                     .shared = true});
    return add_group(s,
                     &(group){mu, own ? "blocks.*.att.time_maa_?" : "blocks.*.attention.time_maa_?",
                              order, .ones = cpp ? 0 : 2}) &&
           add_group(s,
                     &(group){first,
                              own ? "blocks.*.att.time_maa_w1" : "blocks.*.attention.time_maa_w1",
                              order, DRA_PARTS_OUT, .transposed = !cpp, .shared = true}) &&
           add_group(s,
                     &(group){second,
                              own ? "blocks.*.att.time_maa_w2" : "blocks.*.attention.time_maa_w2",
                              order, DRA_PARTS_FRONT, .transposed = !cpp, .shared = true});
}

dra_status dra_rwkv_rules(const dra_model_config *c, dra_name_rules *out, dra_error *err)
{
    const dra_format *f = out->format;
    const bool        fla = f == &dra_format_rwkv7 || f == &dra_format_fla6;
    speech            s = {.version = f->rwkv ? f->rwkv : dra_model_config_rwkv(c),
                           .dialect = out->dialect,
                           .gguf = f == &dra_format_gguf,
                           .rescale = c->rescale_every,
                           .arena = &out->arena};
    s.fla = fla && !is_original(&s);
    if (is_original(&s)) {
        out->prefix = "";
        out->wrapped = "_forward_module.";
        out->head = "head.weight";
    }
    s.rule = dra_arena_alloc(&out->arena, (ROWS + MORE) * sizeof *s.rule);
    if (!s.rule) return dra_fail(err, DRA_ERR_MEMORY, "rwkv: out of memory");
    add_rows(&s);
    if (!add_mixes(&s)) return dra_fail(err, DRA_ERR_MEMORY, "rwkv: out of memory");
    out->row = s.rule;
    return DRA_OK;
}
