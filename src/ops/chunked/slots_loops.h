/* Slots over a run of tokens: see slots.h. */
#ifndef DRA_SRC_OPS_CHUNKED_SLOTS_LOOPS_H
#define DRA_SRC_OPS_CHUNKED_SLOTS_LOOPS_H

#include "device/simd.h"
#include "ops/attrs.h"

typedef struct dra_slots_part { /* of each token: weights (S) and a row (W), one of them made */
    dra_real *w;
    int64_t   w_row;
    dra_real *x;
    int64_t   x_row;
    bool      add; /* to what is made */
} dra_slots_part;

/* Slots m (S, W) taken over n tokens: each fades, takes the writes, is read. Backwards from the
 * last token, where before token t the fading of token t + 1 comes: fade and mark have n + 1 rows.
 * A reset clears the slots in the place of fading; a pad writes nothing and reads 0. */
typedef struct dra_slots_run {
    int64_t               n, S, W;
    int64_t               first, end; /* columns, of `mix`: whole vectors of them; end 0: all */
    int64_t               ahead;      /* the rows wanted next are this many tokens further */
    bool                  back;
    const int32_t        *mark; /* DRA_MARK_ bits of each token, or NULL */
    const dra_real       *fade; /* (n, S): m += fade m */
    const dra_real       *from; /* m before the run */
    dra_real             *to;   /* after it, may be `from`; or NULL */
    const dra_slots_part *write, *read;
    int64_t               writes, reads;
    /* Every `every` tokens, 0: never, the slots are saved, p before token (p + 1) every. Forwards m
     * is stored to saved (p, S, W). Backwards `dots` gives its products with what was saved there,
     * before m fades by token (p + 1) every: saved_dots (p, S). */
    int64_t   every;
    dra_real *saved, *saved_dots;
    bool      add_dots; /* to saved_dots */
} dra_slots_run;

typedef struct dra_softmax_backward { /* d, of a = softmax(s), becomes scale ds; rows of n */
    int64_t         rows, n;
    const dra_real *s, *a;
    const dra_real *dlse; /* of ln sum e^s, one for each row, or NULL */
    dra_real        scale;
    dra_real       *d, *dlog_scale; /* of the logarithm of a factor on a slot: ds s + a d */
    bool            add;            /* to dlog_scale */
} dra_softmax_backward;

/* dl of tokens first..first+n-1. It differs from that of the next token by own - u du, and is known
 * for token `first` and for the one after the last. A sum of differences picks up an error at every
 * token: what it is off at the first one is taken out evenly over the tokens. Where nothing comes
 * through, at a reset or where a slot fades entirely, dl is known too, 0. A pad has 0. */
typedef struct dra_decay_backward {
    int64_t         first, n, S;
    const int32_t  *mark;                /* of each token, as all rows */
    const dra_real *fade, *own, *u, *du; /* fade is (tokens, S) */
    dra_real       *dl;
    int64_t         own_row, u_row, du_row, dl_row;
    const dra_real *start, *end; /* (S): dl of token `first` and of token first + n */
} dra_decay_backward;

typedef struct dra_slots_loops {
    /* m_i += sum w_i x over the writes; reads: w_i = m_i.x, or x = sum_i w_i m_i. What a token
     * gives does not depend on how runs are cut. */
    void (*dots)(const dra_slots_run *s);
    void (*mix)(const dra_slots_run *s);
    void (*softmax_backward)(const dra_softmax_backward *s);
    void (*decay_backward)(const dra_decay_backward *s);
} dra_slots_loops;

extern const dra_slots_loops DRA_LEVELS(dra_slots_loops);

/* Those of the level of these micro-kernels. */
const dra_slots_loops *dra_slots_loops_of(const dra_simd *simd);

#endif
