/* The options of a rotation, a dra_rotary_config; src/ops/attention/rotary.h says what they do. */
#include "memory/turn.h"

#include "base/error.h"
#include "file/field_rows.h"
#include "ops/attention/rotary.h"

DRA_CHOICES(scalings, DRA_SCALING_COUNT, "none", "llama3", "yarn", "longrope-short",
            "longrope-long");

#define FACTORS(f, count, text)                                                                    \
    {                                                                                              \
        .name = #f, .kind = DRA_FIELD_REALS, .offset = offsetof(dra_rotary_config, f),             \
        .given = offsetof(dra_rotary_config, count), .max = 1e6, .most = DRA_ROTARY_FACTORS,       \
        .unset = "none", .about = text                                                             \
    }

const dra_field dra_turn_late_fields[] = {
    CHOICE(dra_rotary_config, scaling, scalings,
           "rotate: slow frequencies are divided by factor, yarn tells them by the pair's number; "
           "longrope: all by factors of their own"),
    REAL(dra_rotary_config, factor, 0, 1e6, "1", "scaling: its factor"),
    REAL(dra_rotary_config, low, 0, 1e6, "1", "scaling: up to so many turns a pair is slow"),
    REAL(dra_rotary_config, high, 0, 1e6, "4; of yarn 32",
         "scaling: from so many turns over the original length on a pair is fast"),
    INT(dra_rotary_config, original, "required", "scaling: the original length in tokens"),
    BOOL(dra_rotary_config, exact, "scaling yarn: low and high are not rounded to pairs"),
    REAL(dra_rotary_config, gain, 0, 1e6, "1", "rotate: factor of what is rotated"),
    INT(dra_rotary_config, limit, "none", "rotate: texts of more tokens are an error"),
    FACTORS(short_factors, n_short,
            "scaling longrope-short: what each frequency is divided by, up to the original length"),
    FACTORS(long_factors, n_long, "scaling longrope-long: the same, for texts of any length"),
    {0},
};

const dra_field dra_turn_fields[] = {
    INT(dra_rotary_config, width, "all", "rotary: channels of a head"),
    REAL(dra_rotary_config, base, 0, 1e12, "10000", "rotary: base of its frequencies"),
    REAL(dra_rotary_config, xpos_base, 0, 1e12, "none", "rotary: base of the scales of xPos"),
    REAL(dra_rotary_config, stretch, 0, 1e6, "1", "rotary: positions are divided by it"),
    BOOL(dra_rotary_config, halves, "rotary: pairs are channels of the two halves, not neighbours"),
    {.name = "", .kind = DRA_FIELD_INLINE, .fields = dra_turn_late_fields},
    {0},
};

/* Only LongRoPE has lists; the one in use has a factor above 0 for each pair. */
static dra_status check_factors(const char *name, const double *factor, int n, int64_t pairs,
                                dra_error *err)
{
    if (n != pairs)
        return dra_fail(err, DRA_ERR_VALUE, "turn: %d %s, expected %lld, one for each pair", n,
                        name, (long long)pairs);
    for (int i = 0; i < n; i++)
        if (!(factor[i] > 0))
            return dra_fail(err, DRA_ERR_VALUE, "turn: %s has %g, expected more than 0", name,
                            factor[i]);
    return DRA_OK;
}

/* The list that is in use has to be there, the other one may. */
static dra_status check_longrope(const dra_rotary_config *t, int64_t key_dim, dra_error *err)
{
    const int64_t pairs = ((t->width ? t->width : key_dim) + 1) / 2;
    const char   *said = t->factor > 0 ? "factor"
                         : t->low > 0  ? "low"
                         : t->high > 0 ? "high"
                         : t->exact    ? "exact"
                         : t->limit    ? "limit"
                                       : NULL;
    const bool    is_long = t->scaling != DRA_SCALING_LONGROPE_SHORT;
    dra_status    st = DRA_OK;
    if (said)
        return dra_fail(err, DRA_ERR_VALUE, "turn: %s and scaling longrope exclude each other",
                        said);
    if (t->original < 1)
        return dra_fail(err, DRA_ERR_VALUE, "turn: scaling needs an original length of 1 or more");
    if (is_long || t->n_long)
        st = check_factors("long_factors", t->long_factors, t->n_long, pairs, err);
    if (st == DRA_OK && (!is_long || t->n_short))
        st = check_factors("short_factors", t->short_factors, t->n_short, pairs, err);
    return st;
}

dra_status dra_turn_check(const dra_rotary_config *t, int64_t key_dim, dra_error *err)
{
    const char  *said = t->factor > 0 ? "factor"
                        : t->low > 0  ? "low"
                        : t->high > 0 ? "high"
                        : t->original ? "original"
                        : t->exact    ? "exact"
                        : t->n_short  ? "short_factors"
                        : t->n_long   ? "long_factors"
                                      : NULL;
    const double low = t->low > 0 ? t->low : 1;
    const double high = t->high > 0 ? t->high : t->scaling == DRA_SCALING_YARN ? 32 : 4;
    dra_status   st = dra_fields_check(dra_turn_late_fields, "turn", t, err);
    if (st != DRA_OK) return st;
    if (dra_rotary_is_longrope(t)) return check_longrope(t, key_dim, err);
    if (!t->scaling && said) return dra_fail(err, DRA_ERR_VALUE, "turn: %s without scaling", said);
    if (t->n_short || t->n_long)
        return dra_fail(err, DRA_ERR_VALUE, "turn: %s without scaling longrope",
                        t->n_short ? "short_factors" : "long_factors");
    if (t->exact && t->scaling != DRA_SCALING_YARN)
        return dra_fail(err, DRA_ERR_VALUE, "turn: exact without scaling yarn");
    if (t->scaling && t->original < 1)
        return dra_fail(err, DRA_ERR_VALUE, "turn: scaling needs an original length of 1 or more");
    if (t->scaling && !(low < high))
        return dra_fail(err, DRA_ERR_VALUE, "turn: low is %g, expected less than high, %g", low,
                        high);
    if (t->scaling && t->base > 0 && !(t->base > 1))
        return dra_fail(err, DRA_ERR_VALUE, "turn: base is %g, expected more than 1 with scaling",
                        t->base);
    return DRA_OK;
}
