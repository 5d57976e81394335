/* Values of templates, as Jinja sees those of Python. Except for namespaces, they never change. All
 * that they point to is in the arena of a rendering, or of the template. */
#ifndef DRA_SRC_JINJA_VALUE_H
#define DRA_SRC_JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum dra_tkind {
    DRA_T_ABSENT,    /* an argument that was not given */
    DRA_T_UNDEFINED, /* a variable or member that does not exist; `text`: its name */
    DRA_T_NONE,
    DRA_T_BOOL,
    DRA_T_INT,
    DRA_T_FLOAT,
    DRA_T_STRING,
    DRA_T_LIST,
    DRA_T_TUPLE,
    DRA_T_DICT,
    DRA_T_NAMESPACE,
    DRA_T_LOOP,
    DRA_T_MACRO,
    DRA_T_FUNCTION,
    DRA_T_METHOD, /* of a dict, that is not called */
    DRA_T_COUNT
} dra_tkind;

typedef struct dra_tvalue dra_tvalue;
typedef struct dra_tpair  dra_tpair;

struct dra_tvalue {
    dra_tkind kind;
    size_t    n; /* bytes of a text, members */
    union {
        bool                       truth;
        int64_t                    whole;
        double                     real;
        const char                *text; /* any bytes, not ended by a 0 */
        const dra_tvalue          *items;
        const dra_tpair           *pairs; /* in the order in which they were put in */
        struct dra_tspace         *space;
        const struct dra_tloop    *loop;
        const struct dra_tmacro   *macro;
        const struct dra_tbuiltin *builtin;
    };
};

struct dra_tpair {
    dra_tvalue key, value;
};

typedef struct dra_tspace { /* a namespace */
    dra_tpair *pairs;
    size_t     n, room;
} dra_tspace;

#define DRA_TEXT(literal) dra_tstring(literal, sizeof(literal) - 1)

static inline dra_tvalue dra_tbool(bool x) { return (dra_tvalue){DRA_T_BOOL, 0, {.truth = x}}; }
static inline dra_tvalue dra_tint(int64_t x) { return (dra_tvalue){DRA_T_INT, 0, {.whole = x}}; }
static inline dra_tvalue dra_treal(double x) { return (dra_tvalue){DRA_T_FLOAT, 0, {.real = x}}; }
static inline dra_tvalue dra_tnone(void) { return (dra_tvalue){.kind = DRA_T_NONE}; }
static inline dra_tvalue dra_tstring(const char *text, size_t n)
{
    return (dra_tvalue){DRA_T_STRING, n, {.text = text}};
}
static inline dra_tvalue dra_tundefined(const char *name, size_t n)
{
    return (dra_tvalue){DRA_T_UNDEFINED, n, {.text = name}};
}
static inline dra_tvalue dra_tlist(const dra_tvalue *items, size_t n)
{
    return (dra_tvalue){DRA_T_LIST, n, {.items = items}};
}
static inline dra_tvalue dra_tdict(const dra_tpair *pairs, size_t n)
{
    return (dra_tvalue){DRA_T_DICT, n, {.pairs = pairs}};
}

static inline bool dra_tis_list(const dra_tvalue *x)
{
    return x->kind == DRA_T_LIST || x->kind == DRA_T_TUPLE;
}
/* Numbers are those of Python: true is 1. */
static inline bool dra_tis_whole(const dra_tvalue *x)
{
    return x->kind == DRA_T_INT || x->kind == DRA_T_BOOL;
}
static inline bool dra_tis_number(const dra_tvalue *x)
{
    return x->kind == DRA_T_FLOAT || dra_tis_whole(x);
}
static inline int64_t dra_twhole(const dra_tvalue *x)
{
    return x->kind == DRA_T_BOOL ? x->truth : x->whole;
}
static inline double dra_tnumber(const dra_tvalue *x)
{
    return x->kind == DRA_T_FLOAT ? x->real : (double)dra_twhole(x);
}

bool        dra_ttruth(const dra_tvalue *x);
bool        dra_tis(const dra_tvalue *x, const char *text); /* a string that is this */
const char *dra_tkind_name(const dra_tvalue *x);            /* as Python calls its type */

/* White space of Python's str.strip() and \s, at the start of n > 0 bytes: its bytes, or 0; and
 * where a text ends without it. */
size_t dra_tblank(const char *text, size_t n);
size_t dra_tblanks(const char *text, size_t n);      /* bytes of those at the start */
size_t dra_twithout_end(const char *text, size_t n); /* bytes without those at the end */

#endif
