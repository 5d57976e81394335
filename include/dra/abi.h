/* dra/abi.h - whether a program and the library it runs with were made for each other: the same
 * dra_real, and public structs of the same sizes. docs/c-interface.md says what may change when. */
#ifndef DRA_ABI_H
#define DRA_ABI_H

#include "dra/bench.h"
#include "dra/engine.h"
#include "dra/probe.h"
#include "dra/template.h"
DRA_BEGIN_C

/* All public structs that are not opaque; `make check` compares the list with the headers. Between
 * patch versions rows are added at the end only. dra_error is the first, as it tells of the others.
 */
/* clang-format off */
#define DRA_ABI_STRUCTS(row)                                                                       \
    row(dra_error) row(dra_dtype_info) row(dra_shape) row(dra_guess) row(dra_tensor_info)          \
    row(dra_metadata_item) row(dra_tensor_item) row(dra_ids) row(dra_tokenizer_config)             \
    row(dra_corpus_config) row(dra_feed_config) row(dra_example_text) row(dra_examples_config)     \
    row(dra_example_input) row(dra_cpu_config) row(dra_device_info) row(dra_span)                  \
    row(dra_bandwidth_config) row(dra_limits) row(dra_value) row(dra_scan_config)                  \
    row(dra_memory_report) row(dra_profile_row) row(dra_op_info) row(dra_axes)                     \
    row(dra_random_config) row(dra_rotary_config) row(dra_cross_entropy_config)                    \
    row(dra_attend_config) row(dra_gru_cell) row(dra_slot_gru_cell) row(dra_lstm_cell)             \
    row(dra_moment_config) row(dra_delta_config) row(dra_slots_config) row(dra_adamw_config)       \
    row(dra_adamw_result) row(dra_sample_row) row(dra_sample_config) row(dra_spec)                 \
    row(dra_param_layout) row(dra_token_items) row(dra_token_segments) row(dra_tokens)             \
    row(dra_module_call) row(dra_module) row(dra_context_shape) row(dra_module_shape)              \
    row(dra_states_difference) row(dra_named) row(dra_context_text) row(dra_gamma_config)          \
    row(dra_ema_options) row(dra_ssm_options) row(dra_cell_options) row(dra_slots_options)         \
    row(dra_moment_options) row(dra_lambda_options) row(dra_delta_options)                         \
    row(dra_attention_options) row(dra_latent_options) row(dra_memory_option)                      \
    row(dra_gate_options)                                                                          \
    row(dra_memory_config) row(dra_mixer_config) row(dra_channels) row(dra_mixer_result)           \
    row(dra_stream) row(dra_memory_sizes) row(dra_memory_call) row(dra_memory_result)              \
    row(dra_memory) row(dra_gamma_row) row(dra_kernel_input) row(dra_norm_config)                  \
    row(dra_ff_config) row(dra_block_config) row(dra_sublayer_config) row(dra_sublayer_result)     \
    row(dra_t5_options) row(dra_dynamic_options) row(dra_alibi_options)                            \
    row(dra_position_config) row(dra_source_config) row(dra_head_config) row(dra_xt_config)        \
    row(dra_xl_config) row(dra_condition_config) row(dra_model_config) row(dra_preset)             \
    row(dra_model_input) row(dra_model_step) row(dra_view) row(dra_model_result)                   \
    row(dra_convert_row) row(dra_convert_config) row(dra_objective_config) row(dra_objective_rows) \
    row(dra_batches_config) row(dra_batch) row(dra_gradients_config) row(dra_microbatch)           \
    row(dra_microbatch_result) row(dra_batch_part) row(dra_evaluation) row(dra_group_config)       \
    row(dra_optimizer_config)                                                                      \
    row(dra_stage) row(dra_train_config) row(dra_trainer_config) row(dra_run_model_config)         \
    row(dra_trainer_plan) row(dra_event) row(dra_scalar) row(dra_probe)                            \
    row(dra_probe_score) row(dra_probe_config) row(dra_probe_result) row(dra_token_bias)           \
    row(dra_sampler_config) row(dra_context) row(dra_amateur) row(dra_draft)                       \
    row(dra_generator_config)                                                                      \
    row(dra_generate_config) row(dra_logprob) row(dra_generated) row(dra_beam_config)              \
    row(dra_beam) row(dra_continue_config) row(dra_continued) row(dra_unmask_config)               \
    row(dra_generation_config) row(dra_weights_config) row(dra_message) row(dra_engine_config)     \
    row(dra_job_token) row(dra_job_result) row(dra_job_config) row(dra_state_info)                 \
    row(dra_engine_stats) row(dra_look) row(dra_seen) row(dra_config_key)                          \
    row(dra_sampler_option) row(dra_lora_config) row(dra_tune_event) row(dra_tune_config)          \
    row(dra_schema_text) row(dra_shortconv_options) row(dra_conv_options)                          \
    row(dra_out_norm_options) row(dra_cache_tensor) row(dra_probe_counts) row(dra_probe_parts)     \
    row(dra_probe_test) row(dra_groups) row(dra_experts_config)
/* clang-format on */

/* Checks what a program was compiled with: its version, and `n` sizes, of dra_real and of the
 * structs in their order. DRA_ERR_VALUE: another minor version, a later patch than the library's,
 * or a struct of another size, which is named. */
DRA_API dra_status dra_abi_compare(int32_t version, size_t n, const size_t *bytes, dra_error *err);

/* To be called before anything else, in a program that may meet another library than it was made
 * for. Compiled into the program, so that the sizes are those it knows. */
static inline dra_status dra_abi_check(dra_error *err)
{
#define DRA_ABI_BYTES(type) , sizeof(type)
    static const size_t bytes[] = {sizeof(dra_real) DRA_ABI_STRUCTS(DRA_ABI_BYTES)};
#undef DRA_ABI_BYTES
    return dra_abi_compare(DRA_VERSION_NUMBER, sizeof bytes / sizeof *bytes, bytes, err);
}

/* In one file of a shared object with memories for `dra --memory-plugin`: the pointers to their
 * dra_memory, with commas between them. Makes the function dra_memory_plugin(), by which they are
 * found, and which compares the object with the library that loads it: docs/memory-plugins.md. */
#define DRA_MEMORY_PLUGIN(...)                                                                     \
    dra_status dra_memory_plugin(const dra_memory *const **out, dra_error *err);                   \
    dra_status dra_memory_plugin(const dra_memory *const **out, dra_error *err)                    \
    {                                                                                              \
        static const dra_memory *const memories[] = {__VA_ARGS__, NULL};                           \
        *out = memories;                                                                           \
        return dra_abi_check(err);                                                                 \
    }

DRA_END_C
#endif
