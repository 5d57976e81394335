/* Reading a grammar in GBNF, the notation of llama.cpp:
 *   rule      NAME ::= choice             until the next one begins; root is where texts begin
 *   choice    sequence | sequence ...     a sequence may be empty
 *   part      "literal"  [class]  [^class]  .  NAME  (choice)
 *   after it  *  +  ?  {m}  {m,}  {m,n}
 *   escapes   \n \r \t \\ \" \[ \] \- \^  \xHH \uHHHH \UHHHHHHHH, the last three code points
 *   comments  from # to the end of the line */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "file/fail.h"
#include "generate/grammar/grammar.h"
#include "text/letters.h"

enum { RULES = 1 << 14, DEPTH = 200, REPEATS = 16, TIMES = 10000, LAST_CODE = 0x10ffff };

typedef struct reader {
    dra_grammar_text *to;
    const char       *text;
    size_t            n, at;
    int32_t           room; /* of to->rule */
    int               depth;
    size_t            line_at; /* line `line` is the one that holds this place */
    int               line;
    dra_error        *err;
    bool              failed;
} reader;

/* ---- errors ---------------------------------------------------------------------------------- */

static int line_of(reader *r, size_t at)
{
    if (at < r->line_at || r->line == 0) r->line_at = 0, r->line = 1;
    for (; r->line_at < at && r->line_at < r->n; r->line_at++)
        r->line += r->text[r->line_at] == '\n';
    return r->line;
}

static void refuse_grammar(reader *r, size_t at, const char *format, ...) DRA_PRINTF(3, 4);

static void refuse_grammar(reader *r, size_t at, const char *format, ...)
{
    char      room[DRA_BRIEF];
    dra_error why = {0};
    va_list   args;
    if (r->failed) return;
    r->failed = true;
    va_start(args, format);
    dra_fail_v(&why, DRA_ERR_FORMAT, format, args);
    va_end(args);
    dra_fail(r->err, DRA_ERR_FORMAT, "%s:%d: %s", dra_brief(r->to->name, room), line_of(r, at),
             why.text);
}

static void *allocate_phrase(reader *r, size_t size)
{
    void *data = dra_arena_alloc(&r->to->arena, size);
    if (!data && !r->failed) dra_fail(r->err, DRA_ERR_MEMORY, "grammar: out of memory");
    r->failed = r->failed || !data;
    return data;
}

/* What stands at the reader, for an error: a character, or the end. */
static const char *found_text(const reader *r, char room[16])
{
    int32_t code;
    if (r->at >= r->n) return "the end";
    if (r->text[r->at] == '\n') return "the end of the line";
    const size_t n = dra_utf8(r->text + r->at, r->n - r->at, &code);
    room[0] = '\'';
    memcpy(room + 1, r->text + r->at, n);
    memcpy(room + 1 + n, "'", 2);
    return room;
}

static void refuse_expected(reader *r, const char *what)
{
    char room[16];
    refuse_grammar(r, r->at, "expected %s, found %s", what, found_text(r, room));
}

/* ---- characters ------------------------------------------------------------------------------ */

static char peek_char(const reader *r) { return r->at < r->n ? r->text[r->at] : '\0'; }

static size_t after_blanks(const reader *r, size_t at)
{
    for (; at < r->n; at++) {
        if (r->text[at] == '#')
            while (at < r->n && r->text[at] != '\n') at++;
        if (at < r->n && !strchr(" \t\r\n", r->text[at])) break;
    }
    return at < r->n ? at : r->n;
}

static void skip_blanks(reader *r) { r->at = after_blanks(r, r->at); }

static bool in_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static size_t name_length(const reader *r)
{
    size_t n = 0;
    while (r->at + n < r->n && in_name(r->text[r->at + n])) n++;
    return n;
}

/* Whether a rule begins here: a name and "::=". */
static bool at_rule(const reader *r)
{
    const size_t n = name_length(r), at = after_blanks(r, r->at + n);
    return n > 0 && r->n - at >= 3 && memcmp(r->text + at, "::=", 3) == 0;
}

static int32_t read_hex(reader *r, int digits)
{
    int64_t x = 0;
    for (int i = 0; i < digits; i++, r->at++) {
        const char c = peek_char(r);
        if (c >= '0' && c <= '9')
            x = 16 * x + (c - '0');
        else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'))
            x = 16 * x + ((c | 0x20) - 'a' + 10);
        else
            refuse_expected(r, "a hexadecimal digit");
        if (r->failed) return 0;
    }
    if (x > LAST_CODE || (x >= 0xd800 && x < 0xe000)) {
        refuse_grammar(r, r->at, "%llx is no code point", (long long)x);
        return 0;
    }
    return (int32_t)x;
}

/* What follows a backslash. */
static int32_t read_escape(reader *r)
{
    static const char from[] = "nrt\\\"[]-^", to[] = "\n\r\t\\\"[]-^";
    const char        c = peek_char(r);
    const char       *plain = c ? strchr(from, c) : NULL;
    if (!plain && c != 'x' && c != 'u' && c != 'U') {
        refuse_expected(r, "one of n r t \\ \" [ ] - ^ x u U after a backslash");
        return 0;
    }
    r->at++;
    return plain ? to[plain - from] : read_hex(r, c == 'x' ? 2 : c == 'u' ? 4 : 8);
}

/* A character of a literal or a class, perhaps escaped. */
static int32_t read_code(reader *r)
{
    int32_t code = 0;
    if (peek_char(r) == '\\') {
        r->at++;
        return read_escape(r);
    }
    r->at += dra_utf8(r->text + r->at, r->n - r->at, &code);
    return code;
}

/* ---- parts ----------------------------------------------------------------------------------- */

static dra_phrase *make_phrase(reader *r, dra_phrase_kind kind)
{
    dra_phrase *p = allocate_phrase(r, sizeof *p);
    if (p) p->kind = kind;
    return p;
}

static bool at_end_of_line(const reader *r) { return r->at >= r->n || peek_char(r) == '\n'; }

/* Bytes up to the one that closes a literal or a class. An escape is never shorter than what it
 * stands for, so that is room enough for what is between. */
static size_t literal_extent(const reader *r, char close)
{
    size_t at = r->at;
    for (; at < r->n && r->text[at] != '\n' && r->text[at] != close; at++)
        at += r->text[at] == '\\' && at + 1 < r->n && r->text[at + 1] != '\n';
    return at - r->at;
}

static dra_phrase *read_literal(reader *r)
{
    const size_t start = r->at++;
    dra_phrase  *p = make_phrase(r, DRA_PHRASE_LITERAL);
    char        *bytes = allocate_phrase(r, literal_extent(r, '"') + 4);
    while (!r->failed && peek_char(r) != '"') {
        if (at_end_of_line(r)) {
            refuse_grammar(r, start, "a literal has no end: expected \" on its line");
            break;
        }
        const int32_t code = read_code(r);
        if (!r->failed) p->n += dra_utf8_write(code, bytes + p->n);
    }
    if (r->failed) return NULL;
    r->at++;
    p->bytes = bytes;
    return p;
}

static void read_range(reader *r, dra_code_range *out)
{
    const size_t start = r->at;
    out->first = out->last = read_code(r);
    if (r->failed || peek_char(r) != '-' || r->at + 1 >= r->n || r->text[r->at + 1] == ']') return;
    r->at++;
    if (at_end_of_line(r)) return; /* refused as a class without an end */
    out->last = read_code(r);
    if (!r->failed && out->last < out->first)
        refuse_grammar(r, start, "a range ends before it begins");
}

static dra_phrase *read_class(reader *r)
{
    const size_t    start = r->at++;
    dra_phrase     *p = make_phrase(r, DRA_PHRASE_CLASS);
    dra_code_range *range = allocate_phrase(r, (literal_extent(r, ']') + 1) * sizeof *range);
    if (r->failed) return NULL;
    p->negated = peek_char(r) == '^';
    r->at += p->negated;
    while (!r->failed && peek_char(r) != ']') {
        if (at_end_of_line(r))
            refuse_grammar(r, start, "a class has no end: expected ] on its line");
        else
            read_range(r, &range[p->n++]);
    }
    if (!r->failed && p->n == 0) refuse_grammar(r, start, "a class without characters");
    r->at++;
    p->range = range;
    return p;
}

static dra_phrase *read_any(reader *r)
{
    dra_phrase     *p = make_phrase(r, DRA_PHRASE_CLASS);
    dra_code_range *all = allocate_phrase(r, sizeof *all);
    r->at++;
    if (r->failed) return NULL;
    *all = (dra_code_range){0, LAST_CODE};
    p->range = all;
    p->n = 1;
    return p;
}

/* The number of a rule by its name at the reader; it may be defined later. */
static int32_t find_rule(reader *r, size_t n)
{
    dra_grammar_text *t = r->to;
    const char       *name = r->text + r->at;
    for (int32_t i = 0; i < t->rules; i++)
        if (t->rule[i].n == n && memcmp(t->rule[i].name, name, n) == 0) return i;
    if (t->rules == RULES) {
        refuse_grammar(r, r->at, "more than %d rules", RULES);
        return 0;
    }
    if (t->rules == r->room) {
        const int32_t  room = r->room ? 2 * r->room : 16;
        dra_rule_text *more = realloc(t->rule, (size_t)room * sizeof *more);
        if (!more) {
            r->failed = true;
            dra_fail(r->err, DRA_ERR_MEMORY, "grammar: out of memory");
            return 0;
        }
        t->rule = more;
        r->room = room;
    }
    t->rule[t->rules] = (dra_rule_text){name, n, line_of(r, r->at), NULL};
    return t->rules++;
}

static dra_phrase *read_reference(reader *r)
{
    const size_t n = name_length(r);
    dra_phrase  *p = make_phrase(r, DRA_PHRASE_RULE);
    if (!p) return NULL;
    p->rule = find_rule(r, n);
    r->at += n;
    return p;
}

static dra_phrase *read_choice(reader *r);

static dra_phrase *read_group(reader *r)
{
    const size_t start = r->at++;
    if (++r->depth > DEPTH) {
        refuse_grammar(r, start, "groups nest more than %d deep", DEPTH);
        return NULL;
    }
    dra_phrase *p = read_choice(r);
    r->depth--;
    if (!r->failed && peek_char(r) != ')')
        refuse_grammar(r, start, "a group has no end: expected )");
    r->at++;
    return p;
}

static dra_phrase *read_part(reader *r)
{
    const char c = peek_char(r);
    if (c == '"') return read_literal(r);
    if (c == '[') return read_class(r);
    if (c == '(') return read_group(r);
    if (c == '.') return read_any(r);
    if (in_name(c)) return read_reference(r);
    refuse_expected(r, "a literal, a class, a group or the name of a rule");
    return NULL;
}

/* ---- repetition ------------------------------------------------------------------------------ */

static int64_t read_number(reader *r)
{
    int64_t x = 0;
    skip_blanks(r);
    if (peek_char(r) < '0' || peek_char(r) > '9') refuse_expected(r, "a number");
    for (; peek_char(r) >= '0' && peek_char(r) <= '9'; r->at++)
        if (x <= TIMES) x = 10 * x + (peek_char(r) - '0');
    if (x > TIMES) refuse_grammar(r, r->at, "a repetition of more than %d", TIMES);
    skip_blanks(r);
    return x;
}

/* {m}, {m,} or {m,n} */
static void read_times(reader *r, dra_phrase *p)
{
    r->at++;
    p->least = p->most = read_number(r);
    if (!r->failed && peek_char(r) == ',') {
        r->at++;
        skip_blanks(r);
        p->most = peek_char(r) == '}' ? -1 : read_number(r);
    }
    if (!r->failed && peek_char(r) != '}') refuse_expected(r, "}");
    if (!r->failed && p->most >= 0 && p->most < p->least)
        refuse_grammar(r, r->at, "a repetition from %lld to %lld", (long long)p->least,
                       (long long)p->most);
    r->at++;
}

/* What stands after a part, perhaps several of them. */
static dra_phrase *read_repeats(reader *r, dra_phrase *part)
{
    for (int nested = 0; !r->failed; nested++) {
        skip_blanks(r);
        const char c = peek_char(r);
        if (!c || !strchr("*+?{", c)) return part;
        if (nested == REPEATS) {
            refuse_grammar(r, r->at, "more than %d repetitions of each other", REPEATS);
            break;
        }
        dra_phrase *p = make_phrase(r, DRA_PHRASE_REPEAT);
        if (!p) break;
        p->first = part;
        p->least = c == '+';
        p->most = c == '?' ? 1 : -1;
        if (c == '{')
            read_times(r, p);
        else
            r->at++;
        part = p;
    }
    return NULL;
}

/* ---- sequences, choices, rules --------------------------------------------------------------- */

static dra_phrase *read_sequence(reader *r)
{
    dra_phrase *p = make_phrase(r, DRA_PHRASE_SEQUENCE), **end = p ? &p->first : NULL;
    while (!r->failed) {
        skip_blanks(r);
        if (r->at >= r->n || peek_char(r) == '|' || peek_char(r) == ')' || at_rule(r)) break;
        dra_phrase *part = read_part(r);
        if (part) part = read_repeats(r, part);
        if (r->failed || !part) break;
        *end = part;
        end = &part->next;
    }
    return r->failed ? NULL : p;
}

static dra_phrase *read_choice(reader *r)
{
    dra_phrase *p = make_phrase(r, DRA_PHRASE_CHOICE), **end = p ? &p->first : NULL;
    while (!r->failed) {
        dra_phrase *sequence = read_sequence(r);
        if (!sequence) break;
        *end = sequence;
        end = &sequence->next;
        if (peek_char(r) != '|') break;
        r->at++;
    }
    return r->failed ? NULL : p;
}

static void read_rule(reader *r)
{
    const size_t start = r->at, n = name_length(r);
    if (!at_rule(r)) {
        refuse_expected(r, "a rule: NAME ::= ...");
        return;
    }
    const int32_t rule = find_rule(r, n);
    if (r->failed) return;
    if (r->to->rule[rule].body) {
        char room[DRA_BRIEF], name[DRA_BRIEF];
        snprintf(name, sizeof name, "%.*s", (int)(n < 100 ? n : 100), r->text + r->at);
        refuse_grammar(r, start, "rule '%s' is defined twice, first in line %d",
                       dra_brief(name, room), r->to->rule[rule].line);
        return;
    }
    r->at = after_blanks(r, r->at + n) + 3;
    dra_phrase *body = read_choice(r);
    if (!r->failed && peek_char(r) == ')') refuse_expected(r, "no ) without a (");
    if (r->failed) return;
    r->to->rule[rule].body = body;
    r->to->rule[rule].line = line_of(r, start);
}

static void check_utf8(reader *r)
{
    for (size_t at = 0; at < r->n && !r->failed;) {
        int32_t      code;
        const size_t bytes = dra_utf8(r->text + at, r->n - at, &code);
        if (code < 0) refuse_grammar(r, at, "is not UTF-8");
        if (code == 0) refuse_grammar(r, at, "has a NUL byte");
        at += bytes;
    }
}

static void check_rules(reader *r)
{
    dra_grammar_text *t = r->to;
    char              name[DRA_BRIEF], room[DRA_BRIEF], path[DRA_BRIEF];
    t->root = -1;
    for (int32_t i = 0; i < t->rules; i++) {
        const dra_rule_text *rule = &t->rule[i];
        if (rule->n == 4 && memcmp(rule->name, "root", 4) == 0) t->root = i;
        if (rule->body || r->failed) continue;
        r->failed = true;
        snprintf(name, sizeof name, "%.*s", (int)(rule->n < 100 ? rule->n : 100), rule->name);
        dra_fail(r->err, DRA_ERR_FORMAT, "%s:%d: there is no rule '%s'", dra_brief(t->name, path),
                 rule->line, dra_brief(name, room));
    }
    if (r->failed || t->root >= 0) return;
    r->failed = true;
    dra_fail(r->err, DRA_ERR_FORMAT, "%s: there is no rule 'root', where texts begin",
             dra_brief(t->name, path));
}

dra_status dra_grammar_read(const char *name, const char *text, size_t bytes, dra_grammar_text *out,
                            dra_error *err)
{
    dra_error own = {0};
    *out = (dra_grammar_text){.name = name};
    reader r = {.to = out, .text = text, .n = bytes, .err = err ? err : &own};
    check_utf8(&r);
    skip_blanks(&r);
    while (!r.failed && r.at < r.n) {
        read_rule(&r);
        skip_blanks(&r);
    }
    if (!r.failed) check_rules(&r);
    if (!r.failed) return DRA_OK;
    dra_grammar_text_free(out);
    return r.err->code;
}

void dra_grammar_text_free(dra_grammar_text *t)
{
    dra_arena_free(&t->arena);
    free(t->rule);
    *t = (dra_grammar_text){0};
}
