"""Small models of many kinds, with random weights from their configurations; no download.

Weights are large enough that maps are far from even: what is left out of a softmax shows.
"""

import torch
from torch import nn
from torch.nn import functional

LENGTH, VOCABULARY = 24, 97
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": VOCABULARY,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
NO_TOKENS = {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None}


def configuration(name, **more):
    """The configuration of a small model of this kind."""
    import transformers

    kinds = {
        "gpt2": (
            "GPT2Config",
            {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": VOCABULARY},
        ),
        "llama": ("LlamaConfig", {**SIZES, "num_key_value_heads": 2}),
        "gpt_neox": ("GPTNeoXConfig", {**SIZES, "rotary_pct": 0.25}),
        "opt": (
            "OPTConfig",
            {**SIZES, "ffn_dim": 64, "word_embed_proj_dim": 32, "pad_token_id": 1},
        ),
        "bert": ("BertConfig", {**SIZES, "pad_token_id": 0}),
        "t5": (
            "T5Config",
            {
                "d_model": 32,
                "d_kv": 8,
                "d_ff": 64,
                "num_layers": 2,
                "num_heads": 4,
                "vocab_size": VOCABULARY,
                "pad_token_id": 0,
                "decoder_start_token_id": 0,
            },
        ),
        "mistral": ("MistralConfig", {**SIZES, "num_key_value_heads": 2, "sliding_window": 6}),
        "gemma2": (
            "Gemma2Config",
            {
                **SIZES,
                "num_key_value_heads": 2,
                "head_dim": 8,
                "attn_logit_softcapping": 2.0,
                "sliding_window": 8,
                "query_pre_attn_scalar": 8,
            },
        ),
        "gemma3": (
            "Gemma3TextConfig",
            {
                **SIZES,
                "num_key_value_heads": 2,
                "head_dim": 8,
                "sliding_window": 8,
                "query_pre_attn_scalar": 8,
                "layer_types": ["sliding_attention", "full_attention"],
            },
        ),
        "gpt_oss": (
            "GptOssConfig",
            {
                **SIZES,
                "num_key_value_heads": 2,
                "head_dim": 8,
                "num_local_experts": 2,
                "num_experts_per_tok": 1,
                "sliding_window": 8,
                "layer_types": ["sliding_attention", "full_attention"],
            },
        ),
        "qwen3": ("Qwen3Config", {**SIZES, "num_key_value_heads": 2, "head_dim": 8}),
        "clip": (
            "CLIPConfig",
            {
                "text_config": {**SIZES, "eos_token_id": 2},
                "vision_config": {**SIZES, "image_size": 32, "patch_size": 8},
                "projection_dim": 32,
            },
        ),
        "falcon": ("FalconConfig", SIZES),
        "bloom": (
            "BloomConfig",
            {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": VOCABULARY},
        ),
    }
    kind, sizes = kinds[name]
    config = getattr(transformers, kind)(**{**NO_TOKENS, **sizes, **more})
    config.architectures = None
    return config


def small_model(name, implementation="sdpa", *, seed=0, **more):
    """A small model of transformers, in evaluation mode."""
    import transformers

    config = configuration(name, **more)
    heads = {
        "bert": transformers.AutoModelForMaskedLM,
        "t5": transformers.AutoModelForSeq2SeqLM,
        "clip": transformers.AutoModel,
    }
    kind = heads.get(name, transformers.AutoModelForCausalLM)
    torch.manual_seed(seed)
    model = kind.from_config(config, attn_implementation=implementation)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(std=0.3, generator=generator)
        for module in model.modules():
            if hasattr(module, "sinks"):
                module.sinks.normal_(mean=3.0, generator=generator)
    return model.eval()


def tokens(sequences=2, length=LENGTH, *, seed=1):
    """Random token ids, none of which means padding."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCABULARY, (sequences, length), generator=generator)


class Attention(nn.Module):
    """As nanoGPT has it."""

    def __init__(self, dim, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        batch, length, dim = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(x).chunk(3, -1)
        )
        dropout = self.dropout if self.training else 0.0
        y = functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, dim))


class Block(nn.Module):
    def __init__(self, dim, heads, dropout):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(dim), Attention(dim, heads, dropout)
        self.mlp = nn.Sequential(
            nn.LayerNorm(dim),
            nn.Linear(dim, 2 * dim),
            nn.GELU(),
            nn.Linear(2 * dim, dim),
            nn.Dropout(dropout),
        )

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.mlp(x)


class NanoGPT(nn.Module):
    """A small GPT in plain torch; returns logits."""

    def __init__(self, dim=32, heads=4, layers=2, context=64, dropout=0.0, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.tokens, self.places = nn.Embedding(VOCABULARY, dim), nn.Embedding(context, dim)
        self.blocks = nn.ModuleList(Block(dim, heads, dropout) for _ in range(layers))
        self.head = nn.Linear(dim, VOCABULARY)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(x)
