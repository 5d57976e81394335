/* Formats that are built in: plain ones for models that were made without a template, and those of
 * some families, as templates of our own. */
#include "dra/template.h"

#include <string.h>

typedef struct format {
    const char *name, *text;
} format;

#define SYSTEM_FIRST                                                                               \
    "{%- set system = '' %}"                                                                       \
    "{%- if messages and messages[0].role == 'system' %}"                                          \
    "{%- set system = messages[0].content %}"                                                      \
    "{%- set messages = messages[1:] %}"                                                           \
    "{%- endif %}"

static const format formats[] = {
    {"chatml", "{%- for m in messages %}"
               "{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
               "{%- endfor %}"
               "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"},
    {"gemma", SYSTEM_FIRST
     "{{- bos_token }}"
     "{%- for m in messages %}"
     "{{- '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' }}"
     "{%- if loop.first and system %}{{- system + '\\n\\n' }}{%- endif %}"
     "{{- m.content | trim + '<end_of_turn>\\n' }}"
     "{%- endfor %}"
     "{%- if add_generation_prompt %}{{- '<start_of_turn>model\\n' }}{%- endif %}"},
    {"llama2", SYSTEM_FIRST "{%- for m in messages %}"
                            "{%- if m.role == 'user' %}"
                            "{{- bos_token ~ '[INST] ' }}"
                            "{%- if loop.first and system %}"
                            "{{- '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' }}"
                            "{%- endif %}"
                            "{{- m.content | trim + ' [/INST]' }}"
                            "{%- else %}{{- ' ' + m.content | trim + ' ' ~ eos_token }}{%- endif %}"
                            "{%- endfor %}"},
    {"llama3",
     "{{- bos_token }}"
     "{%- for m in messages %}"
     "{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + "
     "'<|eot_id|>' }}"
     "{%- endfor %}"
     "{%- if add_generation_prompt %}"
     "{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"
     "{%- endif %}"},
    {"mistral", SYSTEM_FIRST "{{- bos_token }}"
                             "{%- for m in messages %}"
                             "{%- if m.role == 'user' %}"
                             "{{- '[INST] ' }}"
                             "{%- if loop.first and system %}{{- system + '\\n\\n' }}{%- endif %}"
                             "{{- m.content + ' [/INST]' }}"
                             "{%- else %}{{- ' ' + m.content | trim ~ eos_token }}{%- endif %}"
                             "{%- endfor %}"},
    {"plain", "{%- for m in messages %}"
              "{{- '\\n\\n' if not loop.first }}"
              "{{- m.role | capitalize + ': ' + m.content | trim }}"
              "{%- endfor %}"
              "{%- if add_generation_prompt %}{{- '\\n\\nAssistant:' }}{%- endif %}"},
    {"rwkv-world", "{%- for m in messages %}"
                   "{{- '\\n\\n' if not loop.first }}"
                   "{{- m.role | capitalize + ': ' }}"
                   "{{- m.content | trim | replace('\\r\\n', '\\n') | replace('\\n\\n', '\\n') }}"
                   "{%- endfor %}"
                   "{%- if add_generation_prompt %}{{- '\\n\\nAssistant:' }}{%- endif %}"},
    {"zephyr", "{%- for m in messages %}"
               "{{- '<|' + m.role + '|>\\n' + m.content ~ eos_token ~ '\\n' }}"
               "{%- endfor %}"
               "{%- if add_generation_prompt %}{{- '<|assistant|>\\n' }}{%- endif %}"},
};

enum { FORMATS = sizeof formats / sizeof *formats };

const char *dra_template_named(const char *name)
{
    for (size_t i = 0; i < FORMATS; i++)
        if (strcmp(formats[i].name, name) == 0) return formats[i].text;
    return NULL;
}

const char *dra_template_name(size_t i) { return i < FORMATS ? formats[i].name : NULL; }
