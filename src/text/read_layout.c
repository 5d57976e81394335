/* The parts of a tokenizer.json around its model. Each is one thing or a sequence of several; a
 * table has the types that are known, the keys they may have and what they set. */
#include "text/read_layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/letters.h"

enum {
    NOTHING = DRA_RULE_NULL,
    TEXT = DRA_RULE_TEXT,
    ON = DRA_RULE_ON,
    BOOL = DRA_RULE_BOOL,
    LIST = DRA_RULE_LIST,
    OBJECT = DRA_RULE_OBJECT,
    NEEDED = DRA_RULE_NEEDED,
    ZERO = DRA_RULE_ZERO,
    PLACE = 64
};

typedef enum step { /* parts, in the order in which those of a sequence may come */
                    NFC = 1,
                    PREPEND = 2,
                    REPLACE = 4,
                    DIGITS = 8,
                    PATTERN = 16,
                    SPACES = 32,      /* Split at spaces */
                    BYTES = 64,       /* ByteLevel with its pattern */
                    BYTES_ONLY = 128, /* without */
                    FALLBACK = 256,
                    METASPACE = 512,
                    FUSE = 1024,
                    STRIP = 2048,
                    TEMPLATE = 4096
} step;

typedef struct reader {
    dra_vocabulary *v;
    const char     *place; /* "pre_tokenizer." and so on */
    unsigned        met;
    const json_t *template; /* part of the post_processor */
} reader;

typedef struct known_part {
    const char     *type;
    const dra_rule *rules;
    dra_status (*read)(reader *r, const json_t *part);
} known_part;

static bool is_on(const json_t *part, const char *key)
{
    return json_is_true(json_object_get(part, key));
}

static const char *text_of(const json_t *part, const char *key)
{
    return json_string_value(json_object_get(part, key));
}

static dra_status meet_step(reader *r, step s)
{
    if (r->met >= (unsigned)s)
        return dra_vocabulary_fail(r->v, "%stype: not expected after the part before it", r->place);
    r->met |= s;
    return DRA_OK;
}

/* {"String": TEXT} or {"Regex": TEXT}; NULL: it is not of that kind. */
static const char *pattern_of(const json_t *part, const char *kind)
{
    const json_t *pattern = json_object_get(part, "pattern");
    return json_object_size(pattern) == 1 ? text_of(pattern, kind) : NULL;
}

static dra_status refuse_pattern(const reader *r, const json_t *part, const char *expected)
{
    char            *shown = dra_json_words(json_object_get(part, "pattern"), JSON_COMPACT);
    const dra_status st = dra_vocabulary_fail(r->v, "%spattern: expected %s, found %.300s",
                                              r->place, expected, shown ? shown : "another value");
    free(shown);
    return st;
}

/* ---- normalizer ------------------------------------------------------------------------------ */

static dra_status read_nfc(reader *r, const json_t *part)
{
    (void)part;
    r->v->t->how.nfc = true;
    return meet_step(r, NFC);
}

static dra_status read_prepend(reader *r, const json_t *part)
{
    (void)part;
    r->v->t->how.prefix = DRA_PREFIX_ALWAYS;
    return meet_step(r, PREPEND);
}

/* Of a normalizer a space becomes U+2581; of a decoder it is the other way round. */
static dra_status read_replace(reader *r, const json_t *part)
{
    const bool  back = strncmp(r->place, "decoder", 7) == 0;
    const char *from = back ? DRA_BLOCK : " ", *to = back ? " " : DRA_BLOCK;
    const char *pattern = pattern_of(part, "String");
    if (!pattern || strcmp(pattern, from) != 0 || strcmp(text_of(part, "content"), to) != 0)
        return refuse_pattern(r, part,
                              back ? "U+2581 that becomes a space" : "a space that becomes U+2581");
    if (!back) r->v->t->how.early = true;
    return meet_step(r, REPLACE);
}

/* ---- pre_tokenizer --------------------------------------------------------------------------- */

static dra_status read_bytes(reader *r, const json_t *part)
{
    const bool own = !json_is_false(json_object_get(part, "use_regex"));
    if (is_on(part, "add_prefix_space")) r->v->t->how.prefix = DRA_PREFIX_EACH;
    return meet_step(r, own ? BYTES : BYTES_ONLY);
}

static dra_status read_digits(reader *r, const json_t *part)
{
    (void)part;
    return meet_step(r, DIGITS);
}

/* The pieces are the matches, however it is said. */
static dra_status read_split(reader *r, const json_t *part)
{
    const char *pattern = pattern_of(part, "Regex"), *text = pattern_of(part, "String");
    const char *behavior = text_of(part, "behavior");
    const bool  invert = is_on(part, "invert");
    if (text && strcmp(text, " ") == 0 && strcmp(behavior, "MergedWithPrevious") == 0 && !invert)
        return meet_step(r, SPACES);
    const dra_splitter *split = pattern ? dra_splitter_of(pattern) : NULL;
    if (!split) return refuse_pattern(r, part, "that of Llama 3, Qwen 2 or Qwen 3.5");
    if (strcmp(behavior, invert ? "Removed" : "Isolated") != 0)
        return dra_vocabulary_fail(r->v, "%sbehavior: expected Isolated", r->place);
    r->v->t->how.split = split;
    return meet_step(r, PATTERN);
}

static dra_status read_metaspace(reader *r, const json_t *part)
{
    static const char *const names[] = {"never", "always", "first"};
    const char              *scheme = text_of(part, "prepend_scheme");
    const json_t            *old = json_object_get(part, "add_prefix_space");
    int                      i = json_is_false(old) ? 0 : 1;
    if (scheme)
        for (i = 0; i < 3 && strcmp(scheme, names[i]) != 0;) i++;
    if (i == 3)
        return dra_vocabulary_fail(r->v, "%sprepend_scheme: expected always, first or never",
                                   r->place);
    r->v->t->how.prefix = (uint8_t)i;
    r->v->t->how.at_spaces = !json_is_false(json_object_get(part, "split"));
    return meet_step(r, METASPACE);
}

/* ---- decoder --------------------------------------------------------------------------------- */

static dra_status read_decoded_bytes(reader *r, const json_t *part)
{
    (void)part;
    return meet_step(r, BYTES);
}

static dra_status read_decoded_metaspace(reader *r, const json_t *part)
{
    const char *scheme = text_of(part, "prepend_scheme");
    const bool  never = scheme ? strcmp(scheme, "never") == 0
                               : json_is_false(json_object_get(part, "add_prefix_space"));
    r->v->t->how.strip = never ? DRA_STRIP_NONE : DRA_STRIP_TOKEN;
    return meet_step(r, METASPACE);
}

static dra_status read_fallback(reader *r, const json_t *part)
{
    (void)part;
    r->v->t->how.has_bytes = true;
    return meet_step(r, FALLBACK);
}

static dra_status read_fuse(reader *r, const json_t *part)
{
    (void)part;
    return meet_step(r, FUSE);
}

/* One space, of the whole text: it has to be one by then. */
static dra_status read_strip(reader *r, const json_t *part)
{
    if (json_integer_value(json_object_get(part, "start")) != 1 || !(r->met & FUSE))
        return dra_vocabulary_fail(r->v, "%sstart: expected 1, after Fuse", r->place);
    r->v->t->how.strip = DRA_STRIP_ONE;
    return meet_step(r, STRIP);
}

/* ---- post_processor -------------------------------------------------------------------------- */

static dra_status read_template(reader *r, const json_t *part)
{
    r->template = part;
    return meet_step(r, TEMPLATE);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static const dra_rule type_rules[] = {{"type", TEXT | NEEDED, NULL}, {0}};
static const dra_rule prepend_rules[] = {
    {"type", TEXT | NEEDED, NULL}, {"prepend", TEXT | NEEDED, DRA_BLOCK}, {0}};
static const dra_rule replace_rules[] = {{"type", TEXT | NEEDED, NULL},
                                         {"pattern", OBJECT | NEEDED, NULL},
                                         {"content", TEXT | NEEDED, NULL},
                                         {0}};
static const dra_rule pieces_rules[] = {{"type", TEXT | NEEDED, NULL},
                                        {"add_prefix_space", BOOL | NEEDED, NULL},
                                        {"trim_offsets", BOOL, NULL},
                                        {"use_regex", BOOL, NULL},
                                        {0}};
/* Of what comes after the ids, offsets and the like, nothing is used. */
static const dra_rule bytes_rules[] = {{"type", TEXT | NEEDED, NULL},
                                       {"add_prefix_space", BOOL, NULL},
                                       {"trim_offsets", BOOL, NULL},
                                       {"use_regex", BOOL, NULL},
                                       {0}};
static const dra_rule digits_rules[] = {
    {"type", TEXT | NEEDED, NULL}, {"individual_digits", ON | NEEDED, NULL}, {0}};
static const dra_rule split_rules[] = {{"type", TEXT | NEEDED, NULL},
                                       {"pattern", OBJECT | NEEDED, NULL},
                                       {"behavior", TEXT | NEEDED, NULL},
                                       {"invert", BOOL, NULL},
                                       {0}};
static const dra_rule metaspace_rules[] = {{"type", TEXT | NEEDED, NULL},
                                           {"replacement", TEXT | NEEDED, DRA_BLOCK},
                                           {"str_rep", TEXT, DRA_BLOCK},
                                           {"add_prefix_space", BOOL, NULL},
                                           {"prepend_scheme", TEXT, NULL},
                                           {"split", BOOL, NULL},
                                           {0}};
static const dra_rule strip_rules[] = {{"type", TEXT | NEEDED, NULL},
                                       {"content", TEXT | NEEDED, " "},
                                       {"start", DRA_RULE_NUMBER | NEEDED, NULL},
                                       {"stop", DRA_RULE_ZERO | NEEDED, NULL},
                                       {0}};
static const dra_rule template_rules[] = {{"type", TEXT | NEEDED, NULL},
                                          {"single", LIST | NEEDED, NULL},
                                          {"pair", LIST | NOTHING, NULL},
                                          {"special_tokens", OBJECT, NULL},
                                          {0}};

static const known_part normalizers[] = {{"NFC", type_rules, read_nfc},
                                         {"Prepend", prepend_rules, read_prepend},
                                         {"Replace", replace_rules, read_replace},
                                         {0}};
static const known_part pre_tokenizers[] = {{"ByteLevel", pieces_rules, read_bytes},
                                            {"Split", split_rules, read_split},
                                            {"Digits", digits_rules, read_digits},
                                            {"Metaspace", metaspace_rules, read_metaspace},
                                            {0}};
static const known_part decoders[] = {{"ByteLevel", bytes_rules, read_decoded_bytes},
                                      {"Replace", replace_rules, read_replace},
                                      {"ByteFallback", type_rules, read_fallback},
                                      {"Fuse", type_rules, read_fuse},
                                      {"Strip", strip_rules, read_strip},
                                      {"Metaspace", metaspace_rules, read_decoded_metaspace},
                                      {0}};
static const known_part post_processors[] = {{"ByteLevel", bytes_rules, read_decoded_bytes},
                                             {"TemplateProcessing", template_rules, read_template},
                                             {0}};

/* ---- reading --------------------------------------------------------------------------------- */

static dra_status read_part(reader *r, const known_part *known, const json_t *object)
{
    const char *type = text_of(object, "type");
    char        names[160] = "";
    size_t      n = 0;
    for (const known_part *p = known; p->type; p++) {
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", p->type);
        if (!type || strcmp(type, p->type) != 0) continue;
        const dra_status st = dra_rules_check(r->v, r->place, object, p->rules);
        return st == DRA_OK ? p->read(r, object) : st;
    }
    char            *found = dra_json_words(json_object_get(object, "type"), JSON_ENCODE_ANY);
    const dra_status st = dra_vocabulary_fail(r->v, "%stype: expected one of %s, found %.100s",
                                              r->place, names, found ? found : "nothing");
    free(found);
    return st;
}

/* One part, or {"type": "Sequence", MEMBERS: [...]}. */
static dra_status read_parts(reader *r, const known_part *known, const json_t *top, const char *key,
                             const char *members)
{
    const json_t  *object = json_object_get(top, key);
    const json_t  *list = json_object_get(object, members);
    const char    *type = text_of(object, "type");
    char           place[PLACE];
    dra_status     st = DRA_OK;
    const dra_rule rules[] = {
        {"type", TEXT | NEEDED, "Sequence"}, {members, LIST | NEEDED, NULL}, {0}};
    snprintf(place, sizeof place, "%s.", key);
    r->place = place;
    r->met = 0;
    if (!json_is_object(object)) return DRA_OK;
    if (!type || strcmp(type, "Sequence") != 0) return read_part(r, known, object);
    st = dra_rules_check(r->v, place, object, rules);
    for (size_t i = 0; i < json_array_size(list) && st == DRA_OK; i++) {
        snprintf(place, sizeof place, "%s.%s[%zu].", key, members, i);
        st = read_part(r, known, json_array_get(list, i));
    }
    return st;
}

static dra_status check_pre_tokenizer(reader *r)
{
    dra_layout *how = &r->v->t->how;
    const bool  early = how->early;
    switch (r->met) {
    case BYTES: return DRA_OK;
    case DIGITS | BYTES: how->split = &dra_splitters[DRA_SPLITTER_DIGITS]; break;
    case PATTERN | BYTES_ONLY: break;
    case METASPACE:
        how->split = NULL;
        if (early) return dra_vocabulary_fail(r->v, "normalizer: expected none with Metaspace");
        return DRA_OK;
    case SPACES:
    case 0:
        how->split = NULL;
        if (early) return DRA_OK;
        return dra_vocabulary_fail(r->v, "pre_tokenizer: expected ByteLevel or Metaspace, or a "
                                         "normalizer that replaces spaces");
    default:
        return dra_vocabulary_fail(r->v,
                                   "pre_tokenizer: expected ByteLevel, alone with use_regex or "
                                   "after Digits, or after Split without use_regex, or Metaspace");
    }
    if (how->prefix == DRA_PREFIX_EACH)
        return dra_vocabulary_fail(r->v, "pre_tokenizer: expected ByteLevel without "
                                         "add_prefix_space after another one");
    return DRA_OK;
}

static dra_status check_decoder(const reader *r)
{
    const bool     bytes = r->v->t->how.split;
    const unsigned one = r->met & (REPLACE | METASPACE);
    const bool     twice = (r->met & METASPACE) && (r->met & STRIP); /* spaces taken away */
    if (bytes ? r->met == BYTES
              : !(r->met & BYTES) && (one == REPLACE || one == METASPACE) && !twice)
        return DRA_OK;
    return dra_vocabulary_fail(r->v, "decoder: expected %s",
                               bytes ? "ByteLevel" : "Replace of U+2581 by a space, or Metaspace");
}

dra_status dra_layout_read(dra_vocabulary *v, const json_t *top)
{
    reader         r = {.v = v};
    dra_layout    *how = &v->t->how;
    dra_status     st = read_parts(&r, normalizers, top, "normalizer", "normalizers");
    const unsigned normal = r.met;
    const uint8_t  prefix = how->prefix;
    if (st == DRA_OK) st = read_parts(&r, pre_tokenizers, top, "pre_tokenizer", "pretokenizers");
    if (st == DRA_OK) st = check_pre_tokenizer(&r);
    if (st == DRA_OK && (how->split ? normal & ~(unsigned)NFC : normal & NFC))
        return dra_vocabulary_fail(v, "normalizer: expected %s",
                                   how->split ? "null or NFC" : "Prepend and Replace, or null");
    if (st == DRA_OK && (normal & PREPEND) && !how->early)
        return dra_vocabulary_fail(v, "normalizer: expected Replace of a space after Prepend");
    if (normal & PREPEND) how->prefix = prefix;
    if (st == DRA_OK) st = read_parts(&r, decoders, top, "decoder", "decoders");
    return st == DRA_OK ? check_decoder(&r) : st;
}

/* ---- tokens around a text -------------------------------------------------------------------- */

static dra_status add_around(const dra_vocabulary *v, dra_around *a, const json_t *named,
                             const json_t *tokens)
{
    const char   *name = text_of(named, "id");
    const json_t *ids = name ? json_object_get(json_object_get(tokens, name), "ids") : NULL;
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *id = json_array_get(ids, i);
        const int64_t x = json_is_integer(id) ? (int64_t)json_integer_value(id) : -1;
        if (x < 0 || x >= v->t->size || v->t->token[x].kind == DRA_TOKEN_NONE || a->n == DRA_AROUND)
            return dra_vocabulary_fail(v,
                                       "post_processor.special_tokens: expected at most %d "
                                       "ids of tokens on each side",
                                       DRA_AROUND);
        a->id[a->n++] = (int32_t)x;
    }
    if (json_array_size(ids)) return DRA_OK;
    return dra_vocabulary_fail(v, "post_processor.single: a special token without ids");
}

dra_status dra_layout_read_around(dra_vocabulary *v, const json_t *top)
{
    reader        r = {.v = v};
    dra_layout   *how = &v->t->how;
    dra_status    st = read_parts(&r, post_processors, top, "post_processor", "processors");
    const json_t *single = json_object_get(r.template, "single");
    const json_t *tokens = json_object_get(r.template, "special_tokens");
    size_t        texts = 0;
    for (size_t i = 0; i < json_array_size(single) && st == DRA_OK; i++) {
        const json_t *item = json_array_get(single, i);
        const json_t *named = json_object_get(item, "SpecialToken");
        if (json_object_get(item, "Sequence"))
            texts++;
        else if (named)
            st = add_around(v, texts ? &how->behind : &how->before, named, tokens);
        else
            texts = 2;
    }
    if (st == DRA_OK && r.template && texts != 1)
        st = dra_vocabulary_fail(v, "post_processor.single: expected one text and special tokens");
    return st;
}
