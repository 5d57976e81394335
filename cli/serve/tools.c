/* How a template writes calls is learned by rendering a conversation with known words. A grammar
 * is made from it, so that the calls of any model can be parsed and their arguments follow the
 * schema. */
#include "tools.h"

#include <stdlib.h>
#include <string.h>

enum { NAME = 64, TRIGGER = 32 /* letters */ };

/* ---- learning -------------------------------------------------------------------------------- */

static const char        content[] = "dra_content", argument[] = "dra_argument";
static const char *const names[] = {"dra_first", "dra_second"};

#define TOOL                                                                                       \
    "{\"type\": \"function\", \"function\": {\"name\": \"%s\", \"description\": \"\", "            \
    "\"parameters\": {\"type\": \"object\", \"properties\": {}}}}"
#define CALL                                                                                       \
    "{\"id\": \"call00000\", \"type\": \"function\", \"function\": {\"name\": \"%s\", "            \
    "\"arguments\": {\"dra_argument\": 1}}}"

/* What the template makes of n calls, or of plain content; NULL: it refuses. To be freed. */
static void render_calls(const serve_model *m, size_t n, char **text)
{
    serve_text t = {0};
    size_t     bytes;
    *text = NULL;
    serve_puts(&t, "{\"add_generation_prompt\": false, \"tools\": [");
    for (size_t i = 0; i < COUNT(names); i++) serve_printf(&t, i ? ", " TOOL : TOOL, names[i]);
    serve_printf(&t,
                 "], \"messages\": [{\"role\": \"user\", \"content\": \"u\"}, "
                 "{\"role\": \"assistant\", \"content\": \"%s\"%s",
                 n ? "" : content, n ? ", \"tool_calls\": [" : "");
    for (size_t i = 0; i < n; i++) serve_printf(&t, i ? ", " CALL : CALL, names[i]);
    serve_puts(&t, n ? "]}]}" : "}]}");
    if (!t.failed) dra_template_render(m->template, t.data, text, &bytes, NULL);
    serve_text_free(&t);
}

static char *copy_part(const char *from, const char *to)
{
    const size_t n = to > from ? (size_t)(to - from) : 0;
    char        *x = malloc(n + 1);
    if (x) memcpy(x, from, n);
    if (x) x[n] = '\0';
    return x;
}

typedef struct call_place { /* where a call stands */
    const char *name, *after_name, *arguments, *after;
} call_place;

static bool find_call(const char *text, const char *name, call_place *p)
{
    p->name = strstr(text, name);
    p->after_name = p->name ? p->name + strlen(name) : NULL;
    const char *key = p->name ? strstr(p->after_name, argument) : NULL;
    if (!key || key < p->after_name + 2 || key[-1] != '"' || key[-2] != '{') return false;
    p->arguments = key - 2;
    const char *rest = key + sizeof argument - 1;
    if (strncmp(rest, "\": 1}", 5) == 0)
        p->after = rest + 5;
    else if (strncmp(rest, "\":1}", 4) == 0)
        p->after = rest + 4;
    else
        return false;
    return true;
}

/* Without what ends a turn: what it has in common with the end of plain content, and what is no
 * text from there on. */
static void cut_end(const serve_model *m, char *end, const char *turn)
{
    size_t  n = strlen(end), k = strlen(turn);
    dra_ids ids = {0};
    while (n && k && end[n - 1] == turn[k - 1]) n--, k--;
    end[n] = '\0';
    if (dra_encode(m->m.tokenizer, end, n, &ids, NULL) != DRA_OK) ids.n = 0;
    for (size_t i = 0; i < ids.n; i++) {
        size_t      bytes;
        const char *piece = dra_tokenizer_piece(m->m.tokenizer, ids.data[i], &bytes);
        char       *at = dra_tokenizer_is_special(m->m.tokenizer, ids.data[i]) && piece && *piece
                             ? strstr(end, piece)
                             : NULL;
        if (at) *at = '\0';
        if (at) break;
    }
    dra_ids_free(&ids);
}

/* Bytes at the beginning that are tokens without text, and the white space after them. */
static size_t count_unseen(const serve_model *m, const char *begin)
{
    dra_ids ids = {0};
    size_t  n = 0, at = 0;
    if (dra_encode(m->m.tokenizer, begin, strlen(begin), &ids, NULL) != DRA_OK) ids.n = 0;
    for (size_t i = 0; i < ids.n; i++) {
        size_t      bytes = 0;
        const char *piece = dra_tokenizer_piece(m->m.tokenizer, ids.data[i], &bytes);
        if (!piece || strncmp(begin + at, piece, bytes) != 0) break;
        at += bytes;
        if (dra_tokenizer_is_special(m->m.tokenizer, ids.data[i])) n = at;
    }
    dra_ids_free(&ids);
    return n + strspn(begin + n, " \t\n");
}

/* A code point; what is none is taken as a byte. */
static int32_t code_of(const char *text, size_t n, size_t *used)
{
    static const unsigned char first[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    const dra_letter           kind = dra_letter_of(text, n, used);
    const bool                 none = kind == DRA_LETTER_NONE || kind == DRA_LETTER_CUT;
    int32_t                    code = (unsigned char)text[0];
    if (none || *used < 1 || *used > 4) {
        *used = 1;
        return code;
    }
    code &= first[*used];
    for (size_t i = 1; i < *used; i++) code = code << 6 | ((unsigned char)text[i] & 0x3f);
    return code;
}

/* A word such as <tool_call>; where there is none, all that comes before the name. */
static size_t count_trigger(const char *begin)
{
    const size_t word = strcspn(begin, " \t\n{\""), n = word ? word : strlen(begin);
    size_t       at = 0, used;
    for (int i = 0; at < n && i < TRIGGER; i++, at += used) code_of(begin + at, n - at, &used);
    return at;
}

static serve_form *make_form(const serve_model *m, const char *plain, const char *one,
                             const char *two)
{
    const char  *said = strstr(plain, content);
    const size_t start = said ? (size_t)(said - plain) : 0;
    call_place   a = {0}, b = {0}, c = {0};
    if (!said || strncmp(plain, one, start) != 0) return NULL;
    if (!find_call(one + start, names[0], &a)) return NULL;
    serve_form *f = calloc(1, sizeof *f);
    if (!f) return NULL;
    f->begin = copy_part(one + start, a.name);
    f->middle = copy_part(a.after_name, a.arguments);
    f->end = copy_part(a.after, a.after + strlen(a.after));
    if (two && find_call(two + start, names[0], &b) && find_call(b.after, names[1], &c))
        f->between = copy_part(b.after, c.name);
    if (f->begin && f->middle && f->end && f->begin[0] && f->middle[0]) {
        cut_end(m, f->end, said + sizeof content - 1);
        f->unseen = count_unseen(m, f->begin);
        f->trigger = count_trigger(f->begin + f->unseen);
    }
    if (f->trigger) return f;
    serve_form_free(f);
    return NULL;
}

serve_form *serve_form_learn(const serve_model *m)
{
    char *plain, *one, *two;
    render_calls(m, 0, &plain);
    render_calls(m, 1, &one);
    render_calls(m, 2, &two);
    serve_form *f = plain && one ? make_form(m, plain, one, two) : NULL;
    free(plain);
    free(one);
    free(two);
    return f;
}

void serve_form_free(serve_form *f)
{
    if (!f) return;
    free(f->begin);
    free(f->middle);
    free(f->between);
    free(f->end);
    free(f);
}

/* ---- what is offered ------------------------------------------------------------------------- */

typedef struct function {
    const char *name, *description;
    json_t     *parameters;
    bool        strict;
} function;

static const serve_field function_fields[] = {
    {"name", SERVE_F_WORD, offsetof(function, name)},
    {"description", SERVE_F_WORD, offsetof(function, description)},
    {"parameters", SERVE_F_ANY, offsetof(function, parameters)},
    {"strict", SERVE_F_BOOL, offsetof(function, strict)},
};

typedef struct tool {
    const char *type;
    json_t     *function;
} tool;

static const serve_field tool_fields[] = {
    {"type", SERVE_F_WORD, offsetof(tool, type)},
    {"function", SERVE_F_ANY, offsetof(tool, function)},
};

static bool is_function_name(const char *name)
{
    const size_t n = name ? strlen(name) : 0;
    return n >= 1 && n <= NAME &&
           strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == n;
}

/* The function of a tool, or of a choice; its errors are of `param`. */
static bool read_function(json_t *x, const char *param, function *f, serve_error *e)
{
    tool t = {0};
    if (!json_is_object(x))
        return serve_wrong(e, 400, param, "%s: expected objects, found %s", param,
                           serve_kind_name(x));
    if (!serve_fields_read(tool_fields, COUNT(tool_fields), x, &t, e)) return false;
    if (!t.type || strcmp(t.type, "function") != 0 || !json_is_object(t.function))
        return serve_wrong(e, 400, param, "%s: expected the type function, and a function", param);
    if (!serve_fields_read(function_fields, COUNT(function_fields), t.function, f, e)) return false;
    return is_function_name(f->name) ||
           serve_wrong(e, 400, param, "%s: expected names of 1 to %d letters, digits, _ and -",
                       param, NAME);
}

static bool read_list(json_t *tools, serve_tools *out, serve_error *e)
{
    static const char param[] = "tools";
    size_t            i;
    json_t           *x;
    if (tools && !json_is_array(tools))
        return serve_wrong(e, 400, param, "%s: expected a list, found %s", param,
                           serve_kind_name(tools));
    if (json_array_size(tools) > SERVE_TOOLS)
        return serve_wrong(e, 400, param, "%s: expected at most %d", param, SERVE_TOOLS);
    json_array_foreach(tools, i, x)
    {
        function f = {0};
        if (!read_function(x, param, &f, e)) return false;
        if (f.parameters && !json_is_object(f.parameters))
            return serve_wrong(e, 400, param, "%s: %s: expected parameters as an object", param,
                               f.name);
        for (size_t k = 0; k < out->n; k++)
            if (strcmp(out->name[k], f.name) == 0)
                return serve_wrong(e, 400, param, "%s: two are called %s", param, f.name);
        out->name[out->n] = f.name;
        out->parameters[out->n] = f.parameters;
        out->strict[out->n++] = f.strict;
    }
    out->list = out->n ? tools : NULL;
    return true;
}

/* "none": as if there were no tools. */
static bool read_choice(json_t *choice, serve_tools *out, serve_error *e)
{
    static const char param[] = "tool_choice";
    const char       *word = json_string_value(choice);
    function          f = {0};
    if (word && strcmp(word, "none") == 0) out->list = NULL;
    if (!choice || (word && (strcmp(word, "none") == 0 || strcmp(word, "auto") == 0))) return true;
    if (!out->list) return serve_wrong(e, 400, param, "%s: expected tools with it", param);
    if (word && strcmp(word, "required") == 0) {
        out->choice = SERVE_REQUIRED;
        return true;
    }
    if (!json_is_object(choice))
        return serve_wrong(e, 400, param, "%s: expected none, auto, required or a function", param);
    if (!read_function(choice, param, &f, e)) return false;
    out->choice = SERVE_NAMED;
    while (out->named < out->n && strcmp(out->name[out->named], f.name) != 0) out->named++;
    return out->named < out->n ||
           serve_wrong(e, 400, param, "%s: there is no tool %s", param, f.name);
}

bool serve_tools_read(json_t *tools, json_t *choice, serve_tools *out, serve_error *e)
{
    return read_list(tools, out, e) && read_choice(choice, out, e);
}

/* ---- the grammar ----------------------------------------------------------------------------- */

static void put_code(serve_text *t, int32_t code) { serve_printf(t, "\\U%08X", (unsigned)code); }

static void put_literal(serve_text *t, const char *text)
{
    size_t used;
    serve_puts(t, " \"");
    for (const char *end = text + strlen(text); text < end; text += used)
        put_code(t, code_of(text, (size_t)(end - text), &used));
    serve_puts(t, "\"");
}

/* The longest beginning of the trigger with which its first i letters and then this one end. */
static size_t trigger_after(const int32_t *code, size_t i, int32_t next)
{
    for (size_t to = i + 1; to > 0; to--) {
        bool fits = code[to - 1] == next;
        for (size_t j = 0; j + 1 < to && fits; j++) fits = code[j] == code[i + 1 - to + j];
        if (fits) return to;
    }
    return 0;
}

/* Text in which the trigger comes at its end alone, then the rest of a call: rule i is reached
 * where the last i letters are the first i of the trigger. */
static void put_text_rules(serve_text *t, const char *trigger, size_t bytes)
{
    int32_t code[TRIGGER];
    size_t  n = 0, used;
    for (size_t at = 0; at < bytes && n < TRIGGER; at += used)
        code[n++] = code_of(trigger + at, bytes - at, &used);
    for (size_t i = 0; i < n; i++) {
        serve_printf(t, "text-%zu ::= \"\"", i);
        for (size_t k = 0; k < n; k++) {
            bool         seen = false;
            const size_t to = trigger_after(code, i, code[k]);
            for (size_t j = 0; j < k; j++) seen |= code[j] == code[k];
            if (seen) continue;
            serve_puts(t, " | \"");
            put_code(t, code[k]);
            if (to == n)
                serve_puts(t, "\" call-rest");
            else
                serve_printf(t, "\" text-%zu", to);
        }
        serve_puts(t, " | [^");
        for (size_t k = 0; k < n; k++) put_code(t, code[k]);
        serve_puts(t, "] text-0\n");
    }
}

char *serve_tools_rules(const serve_form *f, const serve_tools *t)
{
    serve_text  x = {0};
    const char *text = f->begin + f->unseen, *dots = f->between && !t->single ? f->between : NULL;
    serve_puts(&x, t->choice == SERVE_AUTO       ? "root ::= text-0\n"
                   : t->choice == SERVE_REQUIRED ? "root ::= call-list\n"
                                                 : "root ::= call-args\n");
    if (t->choice == SERVE_AUTO) put_text_rules(&x, text, f->trigger);
    serve_puts(&x, "call-rest ::=");
    put_literal(&x, text + f->trigger);
    serve_puts(&x, " call-list\ncall-list ::= call-one");
    if (dots) serve_puts(&x, " (");
    if (dots) put_literal(&x, dots);
    if (dots) serve_puts(&x, " call-one)*");
    put_literal(&x, f->end);
    serve_printf(&x, "\ncall-args ::= schema%zu", t->named);
    put_literal(&x, f->end);
    serve_puts(&x, "\ncall-one ::=");
    for (size_t i = 0; i < t->n; i++) {
        serve_puts(&x, i ? " |" : "");
        put_literal(&x, t->name[i]);
        put_literal(&x, f->middle);
        serve_printf(&x, " schema%zu", i);
    }
    serve_puts(&x, "\n");
    if (!x.failed) return x.data;
    serve_text_free(&x);
    return NULL;
}

void serve_tools_begin(const serve_form *f, const serve_tools *t, serve_text *out)
{
    if (t->choice == SERVE_AUTO) return;
    serve_puts(out, f->begin);
    if (t->choice == SERVE_REQUIRED) return;
    serve_puts(out, t->name[t->named]);
    serve_puts(out, f->middle);
}

/* ---- calls of an answer ---------------------------------------------------------------------- */

size_t serve_calls_after(const serve_form *f, const serve_tools *t, const char *text, size_t n,
                         bool over)
{
    const char *trigger = f->begin + f->unseen;
    if (t->choice != SERVE_AUTO) return 0;
    for (size_t i = 0; i < n; i++) {
        const size_t k = n - i < f->trigger ? n - i : f->trigger;
        if (memcmp(text + i, trigger, k) == 0 && (k == f->trigger || !over)) return i;
    }
    return n;
}

/* The length of the object at the beginning; *whole: it is complete. */
static size_t count_object(const char *text, size_t n, bool *whole)
{
    size_t depth = 0;
    bool   quoted = false;
    *whole = false;
    for (size_t i = 0; i < n && !*whole; i++) {
        if (quoted && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            quoted = !quoted;
        else if (!quoted && (text[i] == '{' || text[i] == '['))
            depth++;
        else if (!quoted && (text[i] == '}' || text[i] == ']') && --depth == 0)
            *whole = true, n = i + 1;
    }
    return n;
}

static void put_call(size_t i, const char *name, size_t bytes, const char *arguments, size_t n,
                     bool numbered, serve_text *out)
{
    serve_puts(out, i ? ", {" : "{");
    if (numbered) serve_printf(out, "\"index\": %zu, ", i);
    serve_printf(out, "\"id\": \"call_%016llx\", \"type\": \"function\", \"function\": {\"name\": ",
                 (unsigned long long)serve_random());
    serve_json_text(out, name, bytes);
    serve_puts(out, ", \"arguments\": ");
    serve_json_text(out, arguments, n);
    serve_puts(out, "}}");
}

/* Whether the text goes on with `word`; then it is passed over. */
static bool pass_word(const char **text, size_t *n, const char *word)
{
    const size_t k = strlen(word);
    if (*n < k || memcmp(*text, word, k) != 0) return false;
    *text += k;
    *n -= k;
    return true;
}

size_t serve_calls_put(const serve_form *f, const serve_tools *t, const char *text, size_t n,
                       bool numbered, serve_text *out)
{
    size_t calls = 0;
    bool   whole = t->choice != SERVE_AUTO || pass_word(&text, &n, f->begin + f->unseen);
    while (whole) { /* an answer that was cut may end in an incomplete call */
        const char *name = text, *fixed = t->choice == SERVE_NAMED ? t->name[t->named] : NULL;
        size_t      bytes = fixed ? strlen(fixed) : 0;
        for (size_t i = 0; i < t->n && !fixed; i++) {
            const size_t k = strlen(t->name[i]), m = strlen(f->middle);
            if (k + m <= n && memcmp(name, t->name[i], k) == 0 && !memcmp(name + k, f->middle, m)) {
                bytes = k;
                text += k + m;
                n -= k + m;
                break;
            }
        }
        if (bytes == 0) break;
        const size_t k = count_object(text, n, &whole);
        put_call(calls++, fixed ? fixed : name, bytes, text, k, numbered, out);
        text += k;
        n -= k;
        whole = whole && !fixed && f->between && pass_word(&text, &n, f->between);
    }
    return calls;
}
