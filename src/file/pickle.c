/* A machine for pickles of protocol 2: a stack, a memo, and one row for each opcode it knows.
 * [Python's Lib/pickletools.py describes them] */
#include "file/pickle.h"

#include <stdio.h>
#include <string.h>

#include "file/fail.h"

/* Enough for 40000 tensors: writers put at most 1000 pairs on the stack at once. */
enum { STACK_MOST = 4096, MADE_MOST = 1 << 20, NAME_MOST = 256, PROTOCOL = 2, TO_MARK = -1 };

typedef dra_pickled value;

typedef struct machine {
    const dra_pickle *p;
    dra_error        *err;
    dra_status        status; /* the first error stays */
    size_t            at;     /* of the file */
    size_t            depth, made, memo_room;
    value           **memo;
    value            *stack[STACK_MOST];
    bool              done;
} machine;

static void refuse_pickle(machine *m, const char *what)
{
    if (m->status == DRA_OK)
        m->status = dra_fail_at(m->err, DRA_ERR_FORMAT, m->p->path, "byte %zu: %s", m->at, what);
}

static void no_memory(machine *m)
{
    if (m->status == DRA_OK)
        m->status = dra_fail_at(m->err, DRA_ERR_MEMORY, m->p->path, "out of memory for its pickle");
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static const unsigned char *take_bytes(machine *m, uint64_t n)
{
    if (n > m->p->to - m->at) {
        refuse_pickle(m, "the pickle is cut short");
        return NULL;
    }
    m->at += (size_t)n;
    return m->p->file + m->at - n;
}

static uint64_t take_number(machine *m, int bytes)
{
    const unsigned char *at = take_bytes(m, (uint64_t)bytes);
    uint64_t             n = 0;
    for (int i = 0; at && i < bytes; i++) n |= (uint64_t)at[i] << 8 * i;
    return n;
}

/* As two's complement: the highest bit stands for all above it. */
static int64_t take_signed(machine *m, int bytes)
{
    const uint64_t n = take_number(m, bytes), sign = bytes ? UINT64_C(1) << (8 * bytes - 1) : 0;
    return (int64_t)((n ^ sign) - sign);
}

/* A text up to the end of its line; *length without that. */
static const char *take_line(machine *m, size_t *length)
{
    const unsigned char *at = m->p->file + m->at;
    const unsigned char *end = m->p->to > m->at ? memchr(at, '\n', m->p->to - m->at) : NULL;
    if (!end) {
        refuse_pickle(m, "the pickle is cut short");
        return NULL;
    }
    *length = (size_t)(end - at);
    m->at += *length + 1;
    return (const char *)at;
}

/* ---- values ---------------------------------------------------------------------------------- */

static void push_value(machine *m, value *v)
{
    if (m->status != DRA_OK) return;
    if (m->depth == STACK_MOST)
        refuse_pickle(m, "more than 4096 things on the pickle's stack");
    else
        m->stack[m->depth++] = v;
}

/* A new value on the stack; NULL on failure. */
static value *make_value(machine *m, dra_pickle_kind kind)
{
    value *v = NULL;
    if (m->made++ == MADE_MOST)
        refuse_pickle(m, "more than 1048576 things in the pickle");
    else if (!(v = dra_arena_alloc(m->p->arena, sizeof *v)))
        no_memory(m);
    if (v) v->kind = kind;
    if (v) push_value(m, v);
    return m->status == DRA_OK ? v : NULL;
}

/* Pops the `*n` topmost things, or with TO_MARK all above the last mark, and the mark. *n: how many
 * they are. They are good until the next push. NULL on failure. */
static value **take_off(machine *m, int *n)
{
    const bool marked = *n == TO_MARK;
    int        k = 0;
    while ((size_t)k < m->depth && k != *n &&
           m->stack[m->depth - 1 - (size_t)k]->kind != DRA_PICKLE_MARK)
        k++;
    if (marked ? (size_t)k == m->depth : k != *n) {
        refuse_pickle(m, "the pickle pops more than is on its stack");
        return NULL;
    }
    m->depth -= (size_t)k + marked;
    *n = k;
    return m->stack + m->depth + marked;
}

/* ---- opcodes --------------------------------------------------------------------------------- */

static void read_protocol(machine *m, int unused)
{
    if (take_number(m, 1) != PROTOCOL) refuse_pickle(m, "a pickle of another protocol, expected 2");
}

static void make_empty(machine *m, int kind) { make_value(m, (dra_pickle_kind)kind); }

static void make_bool(machine *m, int is)
{
    value *v = make_value(m, DRA_PICKLE_BOOL);
    if (v) v->number = is;
}

static void make_number(machine *m, int64_t n)
{
    value *v = make_value(m, DRA_PICKLE_INT);
    if (v) v->number = n;
}

static void make_natural(machine *m, int bytes) { make_number(m, (int64_t)take_number(m, bytes)); }

static void make_int(machine *m, int bytes) { make_number(m, take_signed(m, bytes)); }

static void make_long(machine *m, int unused)
{
    const uint64_t bytes = take_number(m, 1);
    if (bytes > 8)
        refuse_pickle(m, "a number of more than 8 bytes");
    else
        make_int(m, (int)bytes);
}

/* A double whose highest byte comes first. */
static void make_real(machine *m, int bytes)
{
    const unsigned char *at = take_bytes(m, (uint64_t)bytes);
    value               *v = at ? make_value(m, DRA_PICKLE_REAL) : NULL;
    uint64_t             bits = 0;
    for (int i = 0; v && i < bytes; i++) bits = bits << 8 | at[i];
    if (v) memcpy(&v->real, &bits, sizeof v->real);
}

static void make_text(machine *m, int bytes)
{
    const uint64_t       n = take_number(m, bytes);
    const unsigned char *at = take_bytes(m, n);
    value               *v = at ? make_value(m, DRA_PICKLE_TEXT) : NULL;
    if (!v) return;
    v->text = (const char *)at;
    v->count = (size_t)n;
}

static void make_global(machine *m, int unused)
{
    size_t             a = 0, b = 0;
    const char        *module = take_line(m, &a), *name = module ? take_line(m, &b) : NULL;
    const char *const *known = m->p->globals;
    char               text[NAME_MOST], room[DRA_BRIEF];
    if (!name) return;
    a = a < NAME_MOST ? a : NAME_MOST;
    b = b < NAME_MOST ? b : NAME_MOST;
    snprintf(text, sizeof text, "%.*s.%.*s", (int)a, module, (int)b, name);
    while (*known && strcmp(*known, text) != 0) known++;
    if (!*known) {
        m->status = dra_fail_at(m->err, DRA_ERR_FORMAT, m->p->path,
                                "global '%s' is not part of a state dict (of a whole module save "
                                "its state_dict())",
                                dra_brief(text, room));
        return;
    }
    value *v = make_value(m, DRA_PICKLE_GLOBAL);
    if (v) v->text = *known;
}

static void make_tuple(machine *m, int n)
{
    value **items = take_off(m, &n);
    if (!items) return;
    value **copy = dra_arena_copy(m->p->arena, items, (size_t)n * sizeof(value *));
    value  *v = copy ? make_value(m, DRA_PICKLE_TUPLE) : NULL;
    if (!copy) no_memory(m);
    if (!v) return;
    v->item = copy;
    v->count = (size_t)n;
}

/* Room for `room` things in place of the `held` at `from`; NULL on failure. */
static value **grow_list(machine *m, value **from, size_t held, size_t room)
{
    value **more = dra_arena_alloc(m->p->arena, room * sizeof(value *));
    if (!more) no_memory(m);
    if (more && held) memcpy(more, from, held * sizeof(value *));
    return more;
}

/* What is on top goes into the list or dict below it. */
static void extend_container(machine *m, dra_pickle_kind kind, int n)
{
    value **items = take_off(m, &n);
    value  *to = items && m->depth ? m->stack[m->depth - 1] : NULL;
    if (!items) return;
    if (!to || to->kind != kind || (kind == DRA_PICKLE_DICT && n % 2)) {
        refuse_pickle(m, "the pickle adds items to something that is not a list or dict");
        return;
    }
    if (to->room - to->count < (size_t)n) {
        const size_t room = 2 * to->count + (size_t)n;
        value      **more = grow_list(m, to->item, to->count, room);
        if (!more) return;
        to->item = more;
        to->room = room;
    }
    if (n) memcpy(to->item + to->count, items, (size_t)n * sizeof(value *));
    to->count += (size_t)n;
}

static void append_items(machine *m, int n) { extend_container(m, DRA_PICKLE_LIST, n); }

static void set_items(machine *m, int n) { extend_container(m, DRA_PICKLE_DICT, n); }

/* A call of OrderedDict is a new dict; any other is noted with its arguments. */
static void call_global(machine *m, int n)
{
    value      **items = take_off(m, &n);
    const value *what = items ? items[0] : NULL, *with = items ? items[1] : NULL;
    if (!items) return;
    if (what->kind != DRA_PICKLE_GLOBAL || with->kind != DRA_PICKLE_TUPLE) {
        refuse_pickle(m, "the pickle calls what is not a global");
        return;
    }
    const bool dict = strcmp(what->text, "collections.OrderedDict") == 0 && with->count == 0;
    value     *v = make_value(m, dict ? DRA_PICKLE_DICT : DRA_PICKLE_CALL);
    if (!v || dict) return;
    v->text = what->text;
    v->item = with->item;
    v->count = with->count;
}

/* Attributes of an object, such as the _metadata of a state dict, mean nothing here. */
static void build_object(machine *m, int n)
{
    value **items = take_off(m, &n);
    if (items) push_value(m, items[0]);
}

static void make_stored(machine *m, int n)
{
    value      **items = take_off(m, &n);
    const value *id = items ? items[0] : NULL;
    if (id && id->kind != DRA_PICKLE_TUPLE)
        refuse_pickle(m, "a persistent id of the pickle is not a tuple");
    value *v = id ? make_value(m, DRA_PICKLE_STORED) : NULL;
    if (!v) return;
    v->item = id->item;
    v->count = id->count;
}

static void put_memo(machine *m, int bytes)
{
    const uint64_t i = take_number(m, bytes);
    int            top = 1;
    value        **items = take_off(m, &top);
    if (!items) return;
    m->depth++; /* it stays */
    if (i >= MADE_MOST) {
        refuse_pickle(m, "more than 1048576 things in the pickle's memo");
        return;
    }
    if (i >= m->memo_room) {
        const size_t room = 2 * (size_t)i + 64;
        value      **more = grow_list(m, m->memo, m->memo_room, room);
        if (!more) return;
        m->memo = more;
        m->memo_room = room;
    }
    m->memo[i] = items[0];
}

static void get_memo(machine *m, int bytes)
{
    const uint64_t i = take_number(m, bytes);
    if (i >= m->memo_room || !m->memo[i])
        refuse_pickle(m, "the pickle reads an empty place of its memo");
    else
        push_value(m, m->memo[i]);
}

static void stop_machine(machine *m, int unused)
{
    m->done = true;
    if (m->depth != 1 || m->stack[0]->kind == DRA_PICKLE_MARK)
        refuse_pickle(m, "the pickle ends with more or less than one value");
}

typedef struct opcode {
    void (*run)(machine *m, int n);
    int n;
} opcode;

static const opcode opcodes[256] = {
    [0x80] = {read_protocol},
    ['('] = {make_empty, DRA_PICKLE_MARK},
    ['N'] = {make_empty, DRA_PICKLE_NONE},
    ['}'] = {make_empty, DRA_PICKLE_DICT},
    [']'] = {make_empty, DRA_PICKLE_LIST},
    [')'] = {make_empty, DRA_PICKLE_TUPLE},
    [0x88] = {make_bool, 1},
    [0x89] = {make_bool, 0},
    ['K'] = {make_natural, 1},
    ['M'] = {make_natural, 2},
    ['J'] = {make_int, 4},
    [0x8a] = {make_long},
    ['G'] = {make_real, 8},
    ['X'] = {make_text, 4},
    ['c'] = {make_global},
    [0x85] = {make_tuple, 1},
    [0x86] = {make_tuple, 2},
    [0x87] = {make_tuple, 3},
    ['t'] = {make_tuple, TO_MARK},
    ['a'] = {append_items, 1},
    ['e'] = {append_items, TO_MARK},
    ['s'] = {set_items, 2},
    ['u'] = {set_items, TO_MARK},
    ['R'] = {call_global, 2},
    ['b'] = {build_object, 2},
    ['Q'] = {make_stored, 1},
    ['q'] = {put_memo, 1},
    ['r'] = {put_memo, 4},
    ['h'] = {get_memo, 1},
    ['j'] = {get_memo, 4},
    ['.'] = {stop_machine},
};

static void run_opcode(machine *m)
{
    const unsigned char *code = take_bytes(m, 1);
    char                 what[64];
    if (!code) return;
    if (opcodes[*code].run) {
        opcodes[*code].run(m, opcodes[*code].n);
        return;
    }
    snprintf(what, sizeof what, "opcode 0x%02x is not part of a state dict's pickle", *code);
    refuse_pickle(m, what);
}

dra_status dra_pickle_read(const dra_pickle *p, const dra_pickled **out, size_t *end,
                           dra_error *err)
{
    machine m = {.p = p, .err = err, .at = p->from};
    while (m.status == DRA_OK && !m.done) run_opcode(&m);
    *out = m.status == DRA_OK ? m.stack[0] : NULL;
    *end = m.at;
    return m.status;
}

const char *dra_pickle_name(dra_pickle_kind kind)
{
    static const char *const names[] = {"a mark", "nothing",  "a bool",  "a number",
                                        "a real", "a text",   "a tuple", "a list",
                                        "a dict", "a global", "a call",  "a storage"};
    _Static_assert(sizeof names / sizeof *names == DRA_PICKLE_COUNT, "a name for each");
    return names[kind];
}

const dra_pickled *dra_pickle_find(const dra_pickled *dict, const char *key)
{
    for (size_t i = 0; dict->kind == DRA_PICKLE_DICT && i < dict->count; i += 2)
        if (dra_pickle_says(dict->item[i], key)) return dict->item[i + 1];
    return NULL;
}

bool dra_pickle_says(const dra_pickled *v, const char *text)
{
    return v->kind == DRA_PICKLE_TEXT && v->count == strlen(text) &&
           memcmp(v->text, text, v->count) == 0;
}
