/* A JSON schema as a grammar: every schema becomes a rule, and an object a few.
 *
 *   properties come in the order of the schema; those that are not required may be left out
 *   o7-2 ::= ("," sp "\"b\":" sp v9)? o7-3     what may follow when a property stands before it
 *
 * Other properties, where they are allowed, come last. Their names have no escapes, so that none of
 * them is one of the schema's, written otherwise. A single space may follow commas and colons. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "dra/file.h"
#include "file/fail.h"
#include "file/json.h"
#include "file/json_make.h"
#include "generate/grammar/grammar.h"

enum { POINTER = 256, DEPTH = 64 };

typedef struct writer {
    const char *name;
    char       *text; /* the grammar, by dra_stream_memory() */
    size_t      n;
    FILE       *out;
    int         rules;
    char        at[POINTER]; /* where in the schema */
    dra_error  *err;
    dra_status  failed;
} writer;

static const char primitives[] =
    "sp ::= \" \"?\n"
    "char ::= [^\"\\\\\\x00-\\x1f\\x7f] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" code)\n"
    "code ::= [0-9a-ceA-CEfF] hex{3} | [dD] [0-7] hex{2}\n"
    "hex ::= [0-9a-fA-F]\n"
    "string ::= \"\\\"\" char* \"\\\"\"\n"
    "integer ::= \"-\"? (\"0\" | [1-9] [0-9]{0,15})\n"
    "number ::= integer (\".\" [0-9]{1,16})? ([eE] [-+]? [0-9]{1,2})?\n"
    "boolean ::= \"true\" | \"false\"\n"
    "null ::= \"null\"\n"
    "plain ::= [^\"\\\\\\x00-\\x1f\\x7f]\n"
    "array ::= \"[\" (value (\",\" sp value)*)? \"]\"\n"
    "object ::= \"{\" (pair (\",\" sp pair)*)? \"}\"\n"
    "pair ::= string \":\" sp value\n"
    "value ::= object | array | string | number | boolean | null\n";

/* ---- errors ---------------------------------------------------------------------------------- */

static void refuse_schema(writer *w, const char *format, ...) DRA_PRINTF(2, 3);

static void refuse_schema(writer *w, const char *format, ...)
{
    char      room[2][DRA_BRIEF];
    dra_error why = {0};
    va_list   args;
    if (w->failed) return;
    va_start(args, format);
    dra_fail_v(&why, DRA_ERR_FORMAT, format, args);
    va_end(args);
    w->failed = dra_fail(w->err, DRA_ERR_FORMAT, "%s: %s: %s", dra_brief(w->name, room[0]),
                         w->at[0] ? dra_brief(w->at, room[1]) : "schema", why.text);
}

static void enter_part(writer *w, const char *part, const char *name, size_t *before)
{
    *before = strlen(w->at);
    snprintf(w->at + *before, sizeof w->at - *before, "/%s%s%s", part, name ? "/" : "",
             name ? name : "");
    dra_make_shown(w->at);
}

static void leave_part(writer *w, size_t before) { w->at[before] = '\0'; }

/* ---- literals -------------------------------------------------------------------------------- */

/* Bytes inside the quotes of a literal. */
static void write_escaped(writer *w, const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p == '"' || *p == '\\')
            fprintf(w->out, "\\%c", *p);
        else if (*p < 0x20)
            fprintf(w->out, "\\x%02x", *p);
        else
            fputc(*p, w->out);
    }
}

/* A JSON value as a literal, the shortest way to write it. */
static void write_value(writer *w, const json_t *value)
{
    dra_json         j = {0};
    char            *text;
    const dra_status st = dra_json_dump(&j, value, JSON_COMPACT | JSON_ENCODE_ANY, w->name, &text,
                                        NULL, w->err);
    if (st != DRA_OK) {
        w->failed = st;
        return;
    }
    fputc('"', w->out);
    write_escaped(w, text);
    fputs("\" ", w->out);
    free(text);
}

static void write_name(writer *w, const char *name)
{
    dra_json j = {0};
    json_t  *text = dra_json_text(&j, name);
    write_value(w, text);
    json_decref(text);
    fputs("\":\" sp ", w->out);
}

/* ---- types ----------------------------------------------------------------------------------- */

static const char *const types[] = {"object",  "array",   "string", "number",
                                    "integer", "boolean", "null"};
enum { OBJECT, ARRAY, STRING, NUMBER, INTEGER, BOOLEAN, NULLS, TYPES, ANY = (1 << TYPES) - 1 };

static int type_of(writer *w, const json_t *name)
{
    char room[DRA_BRIEF];
    for (int i = 0; i < TYPES && json_is_string(name); i++)
        if (strcmp(types[i], json_string_value(name)) == 0) return i;
    if (json_is_string(name))
        refuse_schema(w, "there is no type '%s'", dra_brief(json_string_value(name), room));
    else
        refuse_schema(w, "type: expected a name or a list of names");
    return 0;
}

/* Which types are allowed, as bits. Without `type`, what the other keywords are about. */
static unsigned types_of(writer *w, const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type");
    unsigned      bits = 0;
    size_t        i;
    json_t       *each;
    if (json_is_array(type)) {
        json_array_foreach(type, i, each) bits |= 1u << type_of(w, each);
        if (!bits) refuse_schema(w, "type: expected a name or a list of names");
        return bits;
    }
    if (type) return 1u << type_of(w, type);
    if (json_object_get(schema, "properties") || json_object_get(schema, "required") ||
        json_object_get(schema, "additionalProperties"))
        return 1u << OBJECT;
    return json_object_get(schema, "items") ? 1u << ARRAY : ANY;
}

static bool has_type(const json_t *value, unsigned bits)
{
    const double   x = json_is_real(value) ? json_real_value(value) : 0.5;
    const bool     whole = floor(x) == x;
    const unsigned own = json_is_object(value)    ? 1u << OBJECT
                         : json_is_array(value)   ? 1u << ARRAY
                         : json_is_string(value)  ? 1u << STRING
                         : json_is_integer(value) ? 1u << NUMBER | 1u << INTEGER
                         : json_is_real(value)    ? 1u << NUMBER | (unsigned)whole << INTEGER
                         : json_is_boolean(value) ? 1u << BOOLEAN
                                                  : 1u << NULLS;
    return own & bits;
}

/* ---- names of other properties --------------------------------------------------------------- */

/* Names that begin with the same `n` bytes. */
static bool begins_with(const char *name, const char *with, size_t n)
{
    return strncmp(name, with, n) == 0;
}

static void write_class(writer *w, const char *letter, size_t n)
{
    if (strchr("]^-[", *letter)) fputc('\\', w->out);
    fwrite(letter, 1, n, w->out);
}

/* All names without escapes that begin with `n` bytes of `start` and are no property: those that
 * stop short of one, leave it with another character, or are longer. */
static void write_others(writer *w, const json_t *properties, const char *start, size_t n)
{
    const char *name;
    json_t     *unused;
    const bool  taken = strlen(start) == n && json_object_get(properties, start);
    fputs(taken ? "(" : "( |", w->out);
    fputs("[^\"\\\\\\x00-\\x1f\\x7f", w->out);
    json_object_foreach((json_t *)properties, name, unused)
    {
        const size_t letter = begins_with(name, start, n) ? dra_utf8_letter(name + n) : 0;
        if (letter && (letter > 1 || (name[n] >= 0x20 && !strchr("\"\\", name[n]))))
            write_class(w, name + n, letter);
    }
    fputs("] plain*", w->out);
}

/* Opens write_others() for every place where names part. */
static void write_tree(writer *w, json_t *properties, const char *start, size_t n, int depth)
{
    const char *name, *other;
    json_t     *unused;
    if (depth > 3 * DEPTH) {
        refuse_schema(w, "additionalProperties: expected names of at most %d characters",
                      3 * DEPTH);
        return;
    }
    write_others(w, properties, start, n);
    json_object_foreach(properties, name, unused)
    {
        const size_t letter = begins_with(name, start, n) ? dra_utf8_letter(name + n) : 0;
        bool first = letter && (letter > 1 || (name[n] >= 0x20 && !strchr("\"\\", name[n])));
        json_object_foreach(properties, other, unused)
        {
            if (other == name) break;
            if (first && begins_with(other, name, n + letter)) first = false;
        }
        if (!first || w->failed) continue;
        fputs(" | \"", w->out);
        fwrite(name + n, 1, letter, w->out);
        fputs("\" ", w->out);
        write_tree(w, properties, name, n + letter, depth + 1);
    }
    fputs(")", w->out);
}

/* ---- objects --------------------------------------------------------------------------------- */

static int write_schema(writer *w, const json_t *schema, int depth);

typedef struct members { /* of an object */
    json_t *properties;  /* all that are named, required ones included; owned */
    size_t  n;
    bool   *required; /* (n) */
    int    *rule;     /* (n): of the values */
    int     others;   /* the rule of other properties' values; -1: there are none */
} members;

static bool is_required(const json_t *list, const char *name)
{
    size_t  i;
    json_t *each;
    json_array_foreach((json_t *)list, i, each)
    {
        if (strcmp(json_string_value(each), name) == 0) return true;
    }
    return false;
}

/* Properties that are required but not described have any value. */
static void add_required(writer *w, dra_json *j, members *o, const json_t *required, bool closed)
{
    char    room[DRA_BRIEF];
    size_t  i;
    json_t *each;
    if (required && !json_is_array(required)) {
        refuse_schema(w, "required: expected a list of names");
        return;
    }
    json_array_foreach((json_t *)required, i, each)
    {
        const char *name = json_string_value(each);
        if (!name) {
            refuse_schema(w, "required: expected a list of names");
            return;
        }
        if (json_object_get(o->properties, name)) continue;
        if (closed)
            refuse_schema(w, "required: '%s' is none of its properties", dra_brief(name, room));
        dra_json_set(j, o->properties, name, dra_json_bool(true));
    }
}

static void write_members(writer *w, members *o, const json_t *schema, int depth)
{
    const json_t *required = json_object_get(schema, "required");
    const char   *name;
    json_t       *each;
    size_t        i = 0, before;
    o->n = json_object_size(o->properties);
    o->required = calloc(o->n + 1, sizeof *o->required);
    o->rule = calloc(o->n + 1, sizeof *o->rule);
    if (!o->required || !o->rule) {
        w->failed = dra_fail(w->err, DRA_ERR_MEMORY, "schema: out of memory");
        return;
    }
    json_object_foreach(o->properties, name, each)
    {
        if (w->failed) return;
        enter_part(w, "properties", name, &before);
        o->required[i] = required && is_required(required, name);
        o->rule[i++] = write_schema(w, each, depth + 1);
        leave_part(w, before);
    }
}

/* A property: its name and a value. */
static void write_member(writer *w, const members *o, size_t i)
{
    void *at = json_object_iter(o->properties);
    for (size_t k = 0; k < i; k++) at = json_object_iter_next(o->properties, at);
    write_name(w, json_object_iter_key(at));
    fprintf(w->out, "v%d ", o->rule[i]);
}

/* oN-i: properties from number i on, when another stands before them. oN-x: another property. */
static void write_rest(writer *w, const members *o, int object)
{
    for (size_t i = 0; i < o->n; i++) {
        fprintf(w->out, "o%d-%zu ::= (\",\" sp ", object, i);
        write_member(w, o, i);
        fprintf(w->out, ")%s o%d-%zu\n", o->required[i] ? "" : "?", object, i + 1);
    }
    fprintf(w->out, "o%d-%zu ::= ", object, o->n);
    if (o->others >= 0) fprintf(w->out, "(\",\" sp o%d-x)*", object);
    fputc('\n', w->out);
    if (o->others < 0) return;
    fprintf(w->out, "o%d-x ::= \"\\\"\" ", object);
    write_tree(w, o->properties, "", 0, 0);
    fprintf(w->out, " \"\\\":\" sp v%d\n", o->others);
}

/* The first property that is there may be any up to the first required one. */
static void write_object(writer *w, const members *o, int object)
{
    size_t i = 0;
    write_rest(w, o, object);
    fprintf(w->out, "o%d ::= \"{\" (", object);
    for (; i < o->n; i++) {
        if (i) fputs(" | ", w->out);
        write_member(w, o, i);
        fprintf(w->out, "o%d-%zu", object, i + 1);
        if (o->required[i]) break;
    }
    if (i == o->n) { /* none is required */
        if (o->others >= 0)
            fprintf(w->out, "%so%d-x o%d-%zu", i ? " | " : "", object, object, o->n);
        fputs(i || o->others >= 0 ? " | " : "", w->out);
    }
    fputs(") \"}\"\n", w->out);
}

/* The rule of objects of a schema: "object", or oN. Returns N; -1: the former. */
static int describe_object(writer *w, const json_t *schema, int depth)
{
    json_t   *properties = json_object_get(schema, "properties");
    json_t   *others = json_object_get(schema, "additionalProperties");
    members   o = {.others = -1};
    dra_json  j = {0};
    size_t    before;
    const int object = w->rules++;
    if (properties && !json_is_object(properties))
        refuse_schema(w, "properties: expected an object");
    if (!properties && !others && !json_object_get(schema, "required")) return -1;
    o.properties = properties ? dra_json_share(&j, properties) : dra_json_object(&j);
    if (!w->failed)
        add_required(w, &j, &o, json_object_get(schema, "required"), json_is_false(others));
    if (!w->failed) w->failed = dra_json_check(&j, w->name, w->err);
    if (!w->failed) write_members(w, &o, schema, depth);
    enter_part(w, "additionalProperties", NULL, &before);
    if (!w->failed && (json_is_true(others) || json_is_object(others) || (!properties && !others)))
        o.others = write_schema(w, others ? others : dra_json_bool(true), depth + 1);
    if (!w->failed && others && !json_is_boolean(others) && !json_is_object(others))
        refuse_schema(w, "expected true, false or a schema");
    leave_part(w, before);
    if (!w->failed) write_object(w, &o, object);
    json_decref(o.properties);
    free(o.required);
    free(o.rule);
    return object;
}

static int describe_array(writer *w, const json_t *schema, int depth)
{
    const json_t *items = json_object_get(schema, "items");
    size_t        before;
    if (!items) return -1;
    enter_part(w, "items", NULL, &before);
    if (json_is_array(items))
        refuse_schema(w, "a list of schemas is not supported, expected one schema");
    const int rule = w->failed ? 0 : write_schema(w, items, depth + 1);
    leave_part(w, before);
    return rule;
}

/* ---- schemas --------------------------------------------------------------------------------- */

static bool one_of(const char *name, const char *const *list)
{
    while (*list && strcmp(*list, name) != 0) list++;
    return *list;
}

static void check_keywords(writer *w, const json_t *schema)
{
    static const char *const known[] = {"type",  "properties", "required", "additionalProperties",
                                        "items", "enum",       "const",    NULL};
    static const char *const notes[] = {"$schema",     "$id",     "$comment", "title",
                                        "description", "default", "examples", NULL};
    char                     room[DRA_BRIEF];
    const char              *name;
    json_t                  *unused;
    const bool fixed = json_object_get(schema, "enum") || json_object_get(schema, "const");
    json_object_foreach((json_t *)schema, name, unused)
    {
        if (!one_of(name, known) && !one_of(name, notes))
            refuse_schema(w, "keyword '%s' is not supported", dra_brief(name, room));
        else if (fixed && one_of(name, known + 1) && strcmp(name, "enum") && strcmp(name, "const"))
            refuse_schema(w, "keyword '%s' is not supported next to enum or const", name);
    }
}

/* The values of enum or const, of the types that are allowed. */
static void write_fixed(writer *w, const json_t *schema, unsigned bits)
{
    const json_t *list = json_object_get(schema, "enum"), *only = json_object_get(schema, "const");
    size_t        i, n = 0;
    json_t       *each;
    if (list && !json_is_array(list)) refuse_schema(w, "enum: expected a list of values");
    if (only) {
        bool listed = !list;
        json_array_foreach((json_t *)list, i, each) listed = listed || json_equal(each, only);
        if (!listed || !has_type(only, bits)) refuse_schema(w, "const: no value is left");
        write_value(w, only);
        return;
    }
    json_array_foreach((json_t *)list, i, each)
    {
        if (!has_type(each, bits)) continue;
        if (n++) fputs("| ", w->out);
        write_value(w, each);
    }
    if (!w->failed && n == 0) refuse_schema(w, "enum: no value is left");
}

static void write_types(writer *w, unsigned bits, int object, int items)
{
    const char *between = "";
    for (int i = 0; i < TYPES; i++) {
        if (!(bits >> i & 1) || (i == INTEGER && bits >> NUMBER & 1)) continue;
        fputs(between, w->out);
        if (i == OBJECT && object >= 0)
            fprintf(w->out, "o%d", object);
        else if (i == ARRAY && items >= 0)
            fprintf(w->out, "\"[\" (v%d (\",\" sp v%d)*)? \"]\"", items, items);
        else
            fputs(types[i], w->out);
        between = " | ";
    }
}

/* Writes the rule of a schema, after those it needs. Returns its number. */
static int write_schema(writer *w, const json_t *schema, int depth)
{
    const int rule = w->rules++;
    if (depth > DEPTH) refuse_schema(w, "schemas nest more than %d deep", DEPTH);
    if (!json_is_object(schema) && !json_is_true(schema))
        refuse_schema(w, "expected a schema: an object, or true");
    if (w->failed) return rule;
    if (json_is_true(schema)) {
        fprintf(w->out, "v%d ::= value\n", rule);
        return rule;
    }
    check_keywords(w, schema);
    const bool     fixed = json_object_get(schema, "enum") || json_object_get(schema, "const");
    const unsigned bits = w->failed ? 0 : types_of(w, schema);
    const int      object = !fixed && bits >> OBJECT & 1 ? describe_object(w, schema, depth) : -1;
    const int      items = !fixed && bits >> ARRAY & 1 ? describe_array(w, schema, depth) : -1;
    if (w->failed) return rule;
    fprintf(w->out, "v%d ::= ", rule);
    if (fixed)
        write_fixed(w, schema, bits);
    else
        write_types(w, bits, object, items);
    fputc('\n', w->out);
    return rule;
}

static dra_status no_memory(dra_error *err)
{
    return dra_fail(err, DRA_ERR_MEMORY, "schema: out of memory");
}

/* The rules of schema number i. */
static dra_status add_schema(writer *w, size_t i, const char *json, size_t bytes)
{
    const dra_json_rules rules = {.depth = 2 * DEPTH};
    json_t              *schema = NULL;
    const dra_status     st = dra_json_parse(w->name, json, bytes, rules, &schema, w->err);
    if (st != DRA_OK) return st;
    fprintf(w->out, "schema%zu ::= v%d\n", i, w->rules);
    write_schema(w, schema, 0);
    json_decref(schema);
    return w->failed;
}

dra_status dra_grammar_schema(const char *name, const char *json, size_t bytes, dra_grammar **out,
                              dra_error *err)
{
    const dra_schema_text schema = {json, bytes};
    return dra_grammar_schemas(name, "root ::= schema0\n", 1, &schema, out, err);
}

dra_status dra_grammar_schemas(const char *name, const char *text, size_t n,
                               const dra_schema_text *schema, dra_grammar **out, dra_error *err)
{
    writer     w = {.name = name, .err = err};
    dra_status st = DRA_OK;
    *out = NULL;
    w.out = dra_stream_memory(&w.text, &w.n);
    if (!w.out) return no_memory(err);
    fputs(primitives, w.out);
    for (size_t i = 0; i < n && st == DRA_OK; i++)
        st = add_schema(&w, i, schema[i].json, schema[i].bytes);
    fputs(text, w.out);
    const bool broken = ferror(w.out);
    if ((fclose(w.out) != 0 || broken) && st == DRA_OK) st = no_memory(err);
    if (st == DRA_OK) st = dra_grammar_parse(name, w.text, w.n, out, err);
    free(w.text);
    return st;
}
