"""Hugging Face's transformers over models of dra: importing this registers folders of model_type
"dra" with AutoConfig and AutoModelForCausalLM.

    model = dra.hf.from_pretrained("my-model")     # any folder, file or preset that dra reads
    model.generate(input_ids, max_new_tokens=20)

What transformers calls the cache is a `dra.State`: a text that goes on reads only what is new.
"""
import os
from typing import Any, Dict, List, Optional, Union

import torch
from torch import Tensor
from transformers import (AutoConfig, AutoModelForCausalLM, GenerationConfig, GenerationMixin,
                          PretrainedConfig, PreTrainedModel)
from transformers.cache_utils import Cache
from transformers.modeling_outputs import CausalLMOutputWithPast

from .errors import InvalidValue
from .model import Model, load
from .state import State


class DraConfig(PretrainedConfig):
    """The config of a folder, as dra has it, and what transformers asks of any model."""

    model_type = "dra"

    def __init__(self, **settings: Any) -> None:
        self.vocab_size = settings.get("vocab", 0)
        self.hidden_size = settings.get("dim", 0)
        self.num_hidden_layers = settings.get("depth", 0)
        super().__init__(**settings)


class DraCache(Cache):
    """A state in the place of keys and values."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.layers: List[Any] = []

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.state.tokens

    def get_max_cache_shape(self, layer_idx: int = 0) -> int:
        return -1

    def reorder_cache(self, beam_idx: Tensor) -> None:
        raise InvalidValue("dra.hf: beams are searched by dra itself: dra generate --beams")

    def __repr__(self) -> str:
        return "DraCache(%r)" % self.state


class DraForCausalLM(PreTrainedModel, GenerationMixin):
    """A model of dra with the interface of transformers; to read and generate, on the CPU."""

    config_class = DraConfig
    base_model_prefix = "model"
    main_input_name = "input_ids"
    _is_stateful = True
    _supports_cache_class = True

    def __init__(self, config: DraConfig, model: Optional[Model] = None) -> None:
        super().__init__(config)
        self.dra = model
        self.place = torch.nn.Parameter(torch.zeros(1), requires_grad=False)  # a device to ask for

    @classmethod
    def from_pretrained(cls, path: Union[str, "os.PathLike[str]"], *_: Any,
                        config: Optional[DraConfig] = None, **options: Any) -> "DraForCausalLM":
        model = load(path, **{k: v for k, v in options.items() if k in ("device", "threads",
                                                                        "dtype", "seed", "set")})
        out = cls(config or DraConfig(**_settings(model)), model)
        out.generation_config = GenerationConfig(
            eos_token_id=_end(model), pad_token_id=_end(model) or 0)
        return out.eval()

    def save_pretrained(self, folder: Any, *_: Any, **__: Any) -> None:
        self._model().save(folder, overwrite=True)

    def _model(self) -> Model:
        if self.dra is None:
            raise InvalidValue("dra.hf: made without a model: from_pretrained(folder) has one")
        return self.dra

    def forward(self, input_ids: Optional[Tensor] = None,
                past_key_values: Optional[DraCache] = None,
                attention_mask: Optional[Tensor] = None, labels: Optional[Tensor] = None,
                use_cache: Optional[bool] = None, logits_to_keep: int = 0,
                **kwargs: Any) -> CausalLMOutputWithPast:
        """Logits of input_ids (B, T), which follow what the cache has read."""
        if input_ids is None:
            raise InvalidValue("dra.hf: expected input_ids")
        if attention_mask is not None and not bool((attention_mask != 0).all()):
            raise InvalidValue("dra.hf: rows of one length, without padding, expected")
        model = self._model()
        ids = input_ids.to("cpu", torch.int32).numpy()
        state = past_key_values.state if past_key_values is not None else model.state(len(ids))
        keep = logits_to_keep if isinstance(logits_to_keep, int) else 0
        logits = torch.from_numpy(model(ids, state=state, keep=keep).logits)
        loss = None
        if labels is not None:
            loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1),
                                                     labels[:, 1:].flatten())
        return CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=DraCache(state)
                                      if use_cache is not False else None)

    def prepare_inputs_for_generation(self, input_ids: Tensor,
                                      past_key_values: Optional[DraCache] = None,
                                      attention_mask: Optional[Tensor] = None,
                                      **kwargs: Any) -> Dict[str, Any]:
        """What the cache has not read yet."""
        if not isinstance(past_key_values, DraCache):
            past_key_values = DraCache(self._model().state(len(input_ids)))
        read = past_key_values.get_seq_length()
        return {"input_ids": input_ids[:, read:], "past_key_values": past_key_values,
                "attention_mask": attention_mask, "use_cache": True, "logits_to_keep": 1}

    def _prepare_cache_for_generation(self, *args: Any, **named: Any) -> None:
        """Caches are states, made when the prompt is read."""


def _settings(model: Model) -> Dict[str, Any]:
    return dict(model.config, vocab=model.vocab, dim=model._width())


def _end(model: Model) -> Optional[int]:
    tokenizer = model._tokenizer_or_none()
    return tokenizer.end if tokenizer else None


def from_pretrained(path: Union[str, "os.PathLike[str]"], **options: Any) -> DraForCausalLM:
    """A model of any folder, file or preset that dra reads, with the interface of transformers."""
    return DraForCausalLM.from_pretrained(path, **options)


AutoConfig.register("dra", DraConfig)
AutoModelForCausalLM.register(DraConfig, DraForCausalLM)
