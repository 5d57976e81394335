/* dra/template.h - chat templates: from the messages of a conversation to the text a model reads.
 * The language is the part of Jinja that chat templates of Hugging Face use, with white space as
 * set there (trim_blocks, lstrip_blocks); docs/chat-templates.md lists it.
 * Errors:  DRA_ERR_FORMAT: a template that uses anything else, which is found when it is created.
 *          DRA_ERR_VALUE: rendering failed, for example by raise_exception() of the template. Both
 *          start with "NAME: line N: ". Whatever a template says, rendering ends soon.
 * Threads: a template is read-only once made and may be shared. */
#ifndef DRA_TEMPLATE_H
#define DRA_TEMPLATE_H

#include "dra/base.h"
#include "dra/text.h"
DRA_BEGIN_C

typedef struct dra_template dra_template; /* opaque */

/* From its text; `name` is used in errors and copied. On failure *out is NULL, as below. */
DRA_API dra_status dra_template_create(const char *text, size_t bytes, const char *name,
                                       dra_template **out, dra_error *err);

/* The template of a model's folder: of chat_template.jinja, else of chat_template.json or
 * tokenizer_config.json, where `chat_template` is a text or a list with one named "default". There
 * may be none: DRA_OK, and *out is NULL. The texts of bos_token, eos_token, pad_token and unk_token
 * are those of tokenizer_config.json, else of special_tokens_map.json.
 * With `from`, the template is that file or, if there is no such file, that of
 * dra_template_named(); only tokens come from the folder, which may be NULL. */
DRA_API dra_status dra_template_open(const char *folder, const char *from, dra_template **out,
                                     dra_error *err);

DRA_API void dra_template_destroy(dra_template *t); /* NULL is allowed */

/* The text of a built-in template, such as "chatml"; NULL: no such name is known. */
DRA_API const char *dra_template_named(const char *name);
/* The names of built-in templates, in order; NULL after the last. */
DRA_API const char *dra_template_name(size_t i);

/* "bos_token", "eos_token" and so on of the folder; NULL: not known. Good until the template is
 * destroyed. */
DRA_API const char *dra_template_token(const dra_template *t, const char *name);

/* The text for variables that are an object of JSON: messages, add_generation_prompt, tools and
 * whatever else the template reads; tokens of the folder are variables, too, unless given. *text
 * has a 0 after its last byte and is the caller's, to be released by free(). On failure it is
 * NULL. */
DRA_API dra_status dra_template_render(const dra_template *t, const char *variables, char **text,
                                       size_t *bytes, dra_error *err);

typedef struct dra_message {
    const char *role; /* "system", "user", "assistant" */
    const char *content;
    size_t      bytes; /* of the content, which may be any */
} dra_message;

/* The same for messages. With `answer`, the text ends where the next answer begins. */
DRA_API dra_status dra_template_chat(const dra_template *t, const dra_message *messages, size_t n,
                                     bool answer, char **text, size_t *bytes, dra_error *err);

/* And with further variables, an object of JSON: enable_thinking, tools, whatever the template
 * reads, as chat_template_kwargs of servers. NULL: none. DRA_ERR_VALUE: "messages" or
 * "add_generation_prompt" is among them. */
DRA_API dra_status dra_template_chat_with(const dra_template *t, const dra_message *messages,
                                          size_t n, bool answer, const char *variables, char **text,
                                          size_t *bytes, dra_error *err);

/* How answers end by a template: by a token, *id, where a special one stands between an answer and
 * the next question; else by the text there, *text, to be released by free(). -1 and NULL: neither.
 * DRA_ERR_VALUE: it does not render a usual conversation. */
DRA_API dra_status dra_template_ending(const dra_template *t, const dra_tokenizer *tokenizer,
                                       int32_t *id, char **text, dra_error *err);

DRA_END_C
#endif
