/* Without memory: every allocation of making, opening and rendering a template fails once; each
 * time there is one clear error and nothing leaks. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "dra/template.h"
#include "failing.h"
#include "file/folder.h"

static dra_template  *t, *plain;
static dra_tokenizer *letters;

/* Something of everything that allocates. */
static const char text[] =
    "{%- macro f(a, b='x' 'y') %}{{ a ~ b }}{% endmacro %}"
    "{% set ns = namespace(n=[], d={'k': 1}) %}"
    "{% for i in range(3) if i is odd %}{% set ns.n = ns.n + [i] * 2 %}{% endfor %}"
    "{% set z | upper %}{{ f(ns.n, b=y) }}{% endset %}{{ z }}{{ y[::-1]|tojson(indent=2) }}"
    "{{ y.split('b')|map('title')|join(', ') }}{{ [3, 1]|sort|unique|list }}{{ bos_token }}"
    "{{ {'b': 1, 'a': [none]}|dictsort|string|replace('a', '')|indent(2) }}"
    "{{ messages|selectattr('role', 'eq', 'user')|list|length }}{{ ns.d.items()|list }}";

static const char variables[] = "{\"y\": \"abc\", \"messages\": [{\"role\": \"user\"}]}";

static dra_status make(dra_error *err)
{
    dra_template    *made = t;
    const dra_status st = dra_template_create(text, sizeof text - 1, "t", &made, err);
    assert_int_equal(st == DRA_OK, made != NULL);
    dra_template_destroy(made);
    return st;
}

static dra_status open_folder(dra_error *err)
{
    dra_template    *made = t;
    const dra_status st = dra_template_open(in_folder("."), NULL, &made, err);
    assert_int_equal(st == DRA_OK, made != NULL);
    dra_template_destroy(made);
    return st;
}

static dra_status render(dra_error *err)
{
    char            *out = (char *)(uintptr_t)text;
    size_t           bytes;
    const dra_status st = dra_template_render(t, variables, &out, &bytes, err);
    assert_int_equal(st == DRA_OK, out != NULL);
    free(out);
    return st;
}

static dra_status chat(dra_error *err)
{
    const dra_message m = {"user", "hi", 2};
    char             *out;
    size_t            bytes;
    const dra_status  st = dra_template_chat(t, &m, 1, true, &out, &bytes, err);
    assert_int_equal(st == DRA_OK, out != NULL);
    free(out);
    return st;
}

static dra_status find_ending(dra_error *err)
{
    char            *out = (char *)(uintptr_t)text;
    int32_t          id;
    const dra_status st = dra_template_ending(plain, letters, &id, &out, err);
    assert_int_equal(st == DRA_OK, out != NULL);
    free(out);
    return st;
}

static void fails_each_allocation(dra_status (*function)(dra_error *))
{
    long n = 0;
    for (;; n++) {
        dra_error err = {0};
        allocations_left = n;
        const dra_status st = function(&err);
        allocations_left = -1;
        if (st == DRA_OK) break;
        if (st != DRA_ERR_MEMORY || !strstr(err.text, "out of memory"))
            fail_msg("allocation %ld: '%s'", n, err.text);
    }
    assert_true(n > 0);
}

static void making(void **state) { fails_each_allocation(make); }
static void opening(void **state) { fails_each_allocation(open_folder); }
static void rendering(void **state) { fails_each_allocation(render); }
static void chatting(void **state) { fails_each_allocation(chat); }
static void finding_endings(void **state) { fails_each_allocation(find_ending); }

static int set_up(void)
{
    static const char config[] = "{\"chat_template\": \"{{ messages }}\", \"bos_token\": \"<s>\"}";
    put_file("tokenizer_config.json", config, sizeof config - 1);
    const char always[] = "{%- set messages = messages %}{% set y = 'abc' %}";
    char       whole[sizeof always + sizeof text];
    snprintf(whole, sizeof whole, "%s%s", always, text);
    dra_status st = dra_template_create(whole, strlen(whole), "t", &t, NULL);
    if (st == DRA_OK) st = dra_template_open(NULL, "plain", &plain, NULL);
    if (st == DRA_OK) st = dra_tokenizer_bytes(&letters, NULL);
    return st == DRA_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(making),   cmocka_unit_test(opening),         cmocka_unit_test(rendering),
        cmocka_unit_test(chatting), cmocka_unit_test(finding_endings),
    };
    json_set_alloc_funcs(__wrap_malloc, free);
    if (folder_make(NULL) != 0 || set_up() != 0) return 1;
    const int failed = check_main("templates without memory", NULL, 0, tests, COUNT(tests));
    dra_template_destroy(t);
    dra_template_destroy(plain);
    dra_tokenizer_destroy(letters);
    remove(in_folder("tokenizer_config.json"));
    return folder_remove(NULL) == 0 ? failed : 1;
}
