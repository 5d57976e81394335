/* GGUF files as models: which architectures there are, their settings and the names of tensors. */
#ifndef DRA_SRC_FORMATS_GGUF_GGUF_H
#define DRA_SRC_FORMATS_GGUF_GGUF_H

#include "formats/convert.h"
#include "formats/format.h"

/* RWKV 6 and 7 as architectures (rwkv.c). */
void dra_gguf_read_rwkv6(dra_keys *k, dra_model_config *c);
void dra_gguf_read_rwkv7(dra_keys *k, dra_model_config *c);
void dra_gguf_write_rwkv(dra_keys *k, const dra_model_config *c);
/* The Llama family (llama.c). */
bool       dra_gguf_is_llama(const dra_model_config *c);
bool       dra_gguf_is_qwen2(const dra_model_config *c);
bool       dra_gguf_is_qwen3(const dra_model_config *c);
bool       dra_gguf_is_qwen3moe(const dra_model_config *c);
bool       dra_gguf_is_smollm3(const dra_model_config *c);
void       dra_gguf_read_llama(dra_keys *k, dra_model_config *c);
void       dra_gguf_read_qwen2(dra_keys *k, dra_model_config *c);
void       dra_gguf_read_qwen3(dra_keys *k, dra_model_config *c);
void       dra_gguf_read_qwen3moe(dra_keys *k, dra_model_config *c);
void       dra_gguf_read_smollm3(dra_keys *k, dra_model_config *c);
void       dra_gguf_write_llama(dra_keys *k, const dra_model_config *c);
dra_status dra_gguf_llama_rules(const dra_model_config *c, dra_name_rules *out, dra_error *err);
/* qwen35, mamba2, granitehybrid and lfm2 (recurrent.c). */
bool       dra_gguf_is_qwen35(const dra_model_config *c);
bool       dra_gguf_is_mamba2(const dra_model_config *c);
bool       dra_gguf_is_granite_hybrid(const dra_model_config *c);
bool       dra_gguf_is_lfm2(const dra_model_config *c);
void       dra_gguf_read_qwen35(dra_keys *k, dra_model_config *c);
void       dra_gguf_read_mamba2(dra_keys *k, dra_model_config *c);
void       dra_gguf_read_granite_hybrid(dra_keys *k, dra_model_config *c);
void       dra_gguf_read_lfm2(dra_keys *k, dra_model_config *c);
void       dra_gguf_write_recurrent(dra_keys *k, const dra_model_config *c);
dra_status dra_gguf_recurrent_rules(const dra_model_config *c, dra_name_rules *out, dra_error *err);
dra_status dra_gguf_recurrent_settle(const dra_tensor_source *s, dra_model_config *c,
                                     dra_error *err);
/* What only tensors say: biases, and frequencies that are scaled. */
dra_status dra_gguf_llama_settle(const dra_tensor_source *s, dra_model_config *c, dra_error *err);
/* Tensors that products read and that stay F32 all the same, as in files of llama.cpp. */
bool dra_gguf_stays_f32(const char *name, dra_dtype wanted);

/* The config of an open file: its pairs, and what only its tensors tell. */
dra_status dra_gguf_config(const dra_tensor_source *s, dra_model_config *c, dra_error *err);

/* Writes a conversion as one file, with the tokenizer of the model where GGUF has words for it. */
dra_status dra_gguf_save(dra_conversion *c, const char *path, dra_error *err);

#endif
