/* Templates of model folders: which file, which one of several, tokens, and what is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "dra/template.h"
#include "file/folder.h"

static const char *const files[] = {"tokenizer_config.json", "special_tokens_map.json",
                                    "chat_template.json", "chat_template.jinja"};

/* A folder with these files, NULL: without. */
static const char *folder_of(const char *config, const char *map, const char *json,
                             const char *jinja)
{
    const char *const texts[] = {config, map, json, jinja};
    static char       path[512];
    for (size_t i = 0; i < COUNT(files); i++) {
        remove(in_folder(files[i]));
        if (texts[i]) put_file(files[i], texts[i], strlen(texts[i]));
    }
    snprintf(path, sizeof path, "%s", in_folder("."));
    return path;
}

/* What a folder's template makes of one message; "none" where there is no template. */
static void check_folder(const char *path, const char *from, const char *expected)
{
    const dra_message m = {"user", "Q", 1};
    dra_template     *t = NULL;
    dra_error         err = {0};
    char             *text = NULL;
    size_t            bytes;
    if (dra_template_open(path, from, &t, &err) != DRA_OK) fail_msg("%s", err.text);
    if (!t) {
        assert_string_equal("none", expected);
        return;
    }
    if (dra_template_chat(t, &m, 1, true, &text, &bytes, &err) != DRA_OK) fail_msg("%s", err.text);
    assert_string_equal(text, expected);
    free(text);
    dra_template_destroy(t);
}

static void check_open_refused(const char *path, const char *from, dra_status code,
                               const char *expected)
{
    dra_template *t = NULL;
    dra_error     err = {0};
    assert_int_equal(dra_template_open(path, from, &t, &err), code);
    assert_null(t);
    if (!strstr(err.text, expected)) fail_msg("expected '%s', found '%s'", expected, err.text);
}

static void finds_templates(void **state)
{
    static const char one[] = "{\"chat_template\": \"1{{ messages[0].content }}\"}";
    static const char many[] =
        "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"2\"}, {\"name\": "
        "\"default\", \"template\": \"3\"}]}";
    check_folder(folder_of(NULL, NULL, NULL, NULL), NULL, "none");
    check_folder(folder_of("{}", NULL, NULL, NULL), NULL, "none");
    check_folder(folder_of("{\"chat_template\": null}", NULL, NULL, NULL), NULL, "none");
    check_folder(folder_of(one, NULL, NULL, NULL), NULL, "1Q");
    check_folder(folder_of(many, NULL, NULL, NULL), NULL, "3");
    check_folder(folder_of(one, NULL, many, NULL), NULL, "3");
    check_folder(folder_of(one, NULL, "{}", NULL), NULL, "1Q");
    check_folder(folder_of(one, NULL, many, "4\n"), NULL, "4");
    check_folder(folder_of(one, NULL, NULL, NULL), "plain", "User: Q\n\nAssistant:");
    check_folder(NULL, "plain", "User: Q\n\nAssistant:");
    check_folder(NULL, NULL, "none");
}

static void reads_tokens(void **state)
{
    static const char config[] = "{\"bos_token\": {\"content\": \"<s>\", \"special\": true}, "
                                 "\"eos_token\": \"</s>\", \"pad_token\": null}";
    static const char map[] = "{\"bos_token\": \"<b>\", \"unk_token\": {\"content\": \"<u>\"}}";
    static const char jinja[] = "{{ bos_token ~ eos_token ~ unk_token ~ pad_token }}";
    dra_template     *t = NULL;
    char             *text = NULL;
    size_t            bytes;
    check_folder(folder_of(config, map, NULL, jinja), NULL, "<s></s><u>");
    check_folder(folder_of(NULL, map, NULL, jinja), NULL, "<b><u>");
    put_file("mine", jinja, sizeof jinja - 1);
    check_folder(folder_of(config, map, NULL, NULL), in_folder("mine"), "<s></s><u>");
    assert_int_equal(dra_template_open(folder_of(config, map, NULL, jinja), NULL, &t, NULL),
                     DRA_OK);
    assert_string_equal(dra_template_token(t, "eos_token"), "</s>");
    assert_null(dra_template_token(t, "pad_token"));
    assert_int_equal(dra_template_render(t, "{\"eos_token\": \"E\"}", &text, &bytes, NULL), DRA_OK);
    assert_string_equal(text, "<s>E<u>");
    free(text);
    dra_template_destroy(t);
}

static void refuses(void **state)
{
    check_open_refused(folder_of("[]", NULL, NULL, NULL), NULL, DRA_ERR_FORMAT,
                       "tokenizer_config.json: expected an object");
    check_open_refused(folder_of("{", NULL, NULL, NULL), NULL, DRA_ERR_FORMAT,
                       "tokenizer_config.json: JSON, line 1");
    check_open_refused(folder_of("{\"chat_template\": 3}", NULL, NULL, NULL), NULL, DRA_ERR_FORMAT,
                       "chat_template: expected a text, or a list with one named \"default\"");
    check_open_refused(folder_of("{\"chat_template\": [{\"name\": 3}]}", NULL, NULL, NULL), NULL,
                       DRA_ERR_FORMAT, "chat_template: expected a text");
    check_open_refused(folder_of("{\"chat_template\": \"\\n{{\"}", NULL, NULL, NULL), NULL,
                       DRA_ERR_FORMAT,
                       "tokenizer_config.json: line 2: expected }}, found the end of the template");
    check_open_refused(folder_of(NULL, "[", NULL, "x"), NULL, DRA_ERR_FORMAT,
                       "special_tokens_map.json");
    check_open_refused(NULL, "nope", DRA_ERR_NAME,
                       "nope: no such file, and no chat template of: chatml");
    check_open_refused(NULL, "nope/x", DRA_ERR_FILE, "nope/x: cannot open");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_templates),
        cmocka_unit_test(reads_tokens),
        cmocka_unit_test(refuses),
    };
    if (folder_make(NULL) != 0) return 1;
    const int failed = check_main("templates of folders", NULL, 0, tests, COUNT(tests));
    for (size_t i = 0; i < COUNT(files); i++) remove(in_folder(files[i]));
    remove(in_folder("mine"));
    return folder_remove(NULL) == 0 ? failed : 1;
}
